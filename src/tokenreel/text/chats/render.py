"""Many chats at once, from messages to ids and a turn table.

The promise: control ids come from the template alone; the ids of a content are
what the tokenizer gives for that content by itself; the loss weights stand in the
turn table and are never found by scanning. Costs: one `encode_batch` for all
contents and names of all chats, about a microsecond of Python per message, and a
few array passes per token; no Python per token. Nothing is truncated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from tokenreel.errors import InputError
from tokenreel.text.chats.messages import Chat, Message, Place
from tokenreel.text.chats.model_template import ModelTemplate
from tokenreel.text.chats.policy import Policy, turn_weights
from tokenreel.text.chats.template import Bound, Template, bind
from tokenreel.text.chats.token_layout import assemble, lay_out, turn_table
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer
from tokenreel.text.turns import ROLE_CODES, TURN, token_weights

MAX_HEAD_TOKENS = int(np.iinfo(TURN["head"].type).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Chats as ids with their turns, end to end.

    ids: uint32 [total]; offsets: int64 [chats + 1]; turns: TURN [turns], starts counted
    from the first token of the turn's chat; turn_offsets: int64 [chats + 1]; unrendered: for
    each chat what of it a model's own template left out, in words.
    """

    ids: np.ndarray
    offsets: np.ndarray
    turns: np.ndarray
    turn_offsets: np.ndarray
    unrendered: Sequence[Sequence[str]] = ()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def chat_ids(self, number: int) -> np.ndarray:
        """Return the ids of one chat, a view."""
        return self.ids[self.offsets[number] : self.offsets[number + 1]]

    def chat_turns(self, number: int) -> np.ndarray:
        """Return the turns of one chat, a view."""
        return self.turns[self.turn_offsets[number] : self.turn_offsets[number + 1]]

    def token_weights(self) -> np.ndarray:
        """Return the loss weight of every token of every chat, float32 [total]."""
        turns = self.turns.copy()
        firsts = np.repeat(self.offsets[:-1], np.diff(self.turn_offsets))
        turns["start"] += firsts.astype(np.uint64)
        return token_weights(turns, len(self.ids))


def render(
    chats: Sequence[Chat],
    template: Template | ModelTemplate,
    *,
    tokenizer: Tokenizer,
    policy: Policy = "assistant",
) -> Rendered:
    """Render chats to ids and a turn table, with one call of the tokenizer."""
    empty = next((chat for chat in chats if not chat.messages), None)
    if empty is not None:
        raise InputError("a chat without messages", where=str(empty.provenance))
    if isinstance(template, ModelTemplate):
        return template.renderer(tokenizer).render(chats, policy=policy)
    return _render(chats, bind(template, tokenizer), tokenizer=tokenizer, policy=policy)


def render_prompt(
    messages: Iterable[Message],
    template: Template | ModelTemplate,
    *,
    tokenizer: Tokenizer,
    tools: tuple[str, ...] = (),
) -> np.ndarray:
    """Return the ids a model is given to answer: the messages and the assistant's header."""
    chat = Chat(messages=tuple(messages), tools=tools)
    if isinstance(template, ModelTemplate):
        return template.renderer(tokenizer).render_prompt(chat)
    bound = bind(template, tokenizer)
    rendered = _render([chat], bound, tokenizer=tokenizer, policy="assistant")
    return np.concatenate((rendered.ids, bound.headers["assistant"].ids))


def _render(
    chats: Sequence[Chat], bound: Bound, *, tokenizer: Tokenizer, policy: Policy
) -> Rendered:
    spoken = _all_messages(chats, bound.template)
    turn_offsets = np.cumsum([0, *map(len, spoken)], dtype=np.int64)
    messages = list(chain.from_iterable(spoken))
    places = _Places(chats=chats, turn_offsets=turn_offsets)
    roles = _role_codes(messages, bound, places=places)
    weights = _weights(messages, roles, places=places, policy=policy)
    contents = _contents(messages, bound.template, places=places)
    names = _names(messages, bound)
    encoded = tokenizer.encode_batch(_in_order(contents, names))
    layout = lay_out(
        encoded,
        roles,
        named=np.fromiter(names, np.int64, len(names)),
        turn_offsets=turn_offsets,
        bound=bound,
    )
    _refuse_long_heads(layout.heads, places)
    turns = turn_table(layout, weights, turn_offsets=turn_offsets, tail=len(bound.tail))
    return Rendered(
        ids=assemble(encoded, layout, bound=bound),
        offsets=layout.offsets,
        turns=turns,
        turn_offsets=turn_offsets,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Find the place of the n-th message of all chats; needed for errors only."""

    chats: Sequence[Chat]
    turn_offsets: np.ndarray

    def of(self, index: int) -> Place:
        number = int(np.searchsorted(self.turn_offsets, index, side="right")) - 1
        chat = self.chats[number]
        start, stop = self.turn_offsets[number : number + 2]
        injected = int(stop - start) - len(chat.messages)
        return Place(provenance=chat.provenance, message=int(index - start) - injected + 1)


def _all_messages(chats: Sequence[Chat], template: Template) -> list[tuple[Message, ...]]:
    # Whether a system message is put first depends on the first message alone: the ids of
    # the first k messages must not change when more follow.
    default = template.default_system
    first = None if default is None else Message(role="system", content=default)
    return [
        _with_tools(chat, template)
        if chat.tools
        else chat.messages
        if first is None or (chat.messages and chat.messages[0].role == "system")
        else (first, *chat.messages)
        for chat in chats
    ]


def _with_tools(chat: Chat, template: Template) -> tuple[Message, ...]:
    if template.tools is None:
        raise Place(provenance=chat.provenance, field="tools").error(
            f"the template {template.name!r} has no place for tool schemas",
            remedy="use a template that has one, or leave the tools out",
        )
    first, rest = chat.messages[0] if chat.messages else None, chat.messages[1:]
    if first is None or first.role != "system":
        first, rest = Message(role="system", content=template.default_system or ""), chat.messages
    return (replace(first, content=first.content + template.tools.around(chat.tools)), *rest)


def _role_codes(messages: list[Message], bound: Bound, *, places: _Places) -> np.ndarray:
    codes = {role: ROLE_CODES[role] for role in bound.headers}
    try:
        return np.array([codes[message.role] for message in messages], np.uint8)
    except KeyError:
        index = next(i for i, message in enumerate(messages) if message.role not in codes)
        raise (
            places.of(index)
            .at("role")
            .error(
                f"the template {bound.template.name!r} has no such role",
                expected=f"one of {', '.join(codes)}",
                actual=repr(messages[index].role),
            )
        ) from None


def _contents(messages: list[Message], template: Template, *, places: _Places) -> list[str]:
    lead = template.lead
    contents = [message.content for message in messages]
    if lead:
        contents = [lead + content for content in contents]
    for index, message in enumerate(messages):
        if message.calls:
            if template.calls is None:
                raise (
                    places.of(index)
                    .at("tool_calls")
                    .error(
                        f"the template {template.name!r} has no place for tool calls",
                        remedy="use a template that has one, or leave the calls out",
                    )
                )
            calls = template.calls.around(tuple(call.as_json() for call in message.calls))
            contents[index] += calls
    return contents


def _names(messages: list[Message], bound: Bound) -> dict[int, str]:
    before = {
        role: header.name for role, header in bound.headers.items() if header.name is not None
    }
    return {
        index: before[message.role] + message.name
        for index, message in enumerate(messages)
        if message.name is not None and message.role in before
    }


def _in_order(contents: list[str], names: dict[int, str]) -> list[str]:
    if not names:
        return contents
    texts = []
    for index, content in enumerate(contents):
        if index in names:
            texts.append(names[index])
        texts.append(content)
    return texts


def _weights(
    messages: list[Message], roles: np.ndarray, *, places: _Places, policy: Policy
) -> np.ndarray:
    weights = turn_weights(roles, places.turn_offsets, policy=policy)
    for index, message in enumerate(messages):
        if message.weight is not None:
            weights[index] = message.weight
            if not 0 <= weights[index] < np.inf:
                raise (
                    places.of(index)
                    .at("weight")
                    .error("not a weight", expected="a number from 0 up", actual=message.weight)
                )
    trained_results = np.flatnonzero((roles == ROLE_CODES["tool"]) & (weights > 0))
    if len(trained_results):
        raise (
            places.of(int(trained_results[0]))
            .at("weight")
            .error("a tool's result is never trained", remedy="leave out its weight")
        )
    return weights


def _refuse_long_heads(heads: np.ndarray, places: _Places) -> None:
    long = np.flatnonzero(heads > MAX_HEAD_TOKENS)
    if len(long):
        raise (
            places.of(int(long[0]))
            .at("name")
            .error(
                "the header with this name is too long",
                expected=f"at most {MAX_HEAD_TOKENS:,} tokens",
                actual=int(heads[long[0]]),
            )
        )
