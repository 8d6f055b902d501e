"""Many chats at once, from messages to ids and a turn table.

The promise: control ids come from the template alone; the text between two of them is
encoded as one stretch, so the ids are those that the model's tokenizer gives for the whole
chat; a token is trained if all its characters are; the loss weights stand in the turn table
and are never found by scanning. Costs: one `encode_batch` for all stretches of all chats,
about a microsecond of Python per message, and a few array passes per token, where the
template is tight (token_layout.py); some ten times that where it is not. Nothing is
truncated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenreel.errors import InputError
from tokenreel.text.chats.jinja_tokens import Cutter
from tokenreel.text.chats.messages import Chat, Message
from tokenreel.text.chats.model_template import ModelTemplate
from tokenreel.text.chats.policy import Policy, turn_weights
from tokenreel.text.chats.template import Template, bind
from tokenreel.text.chats.template_messages import Given, read_given
from tokenreel.text.chats.template_text import encode_writings, turns_at, write
from tokenreel.text.chats.token_layout import Tight, assemble, begun_before, lay_out
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
    return _render(chats, template, tokenizer=tokenizer, policy=policy)


def render_prompt(
    messages: Iterable[Message],
    template: Template | ModelTemplate,
    *,
    tokenizer: Tokenizer,
    tools: tuple[str, ...] = (),
    continues: bool = False,
) -> np.ndarray:
    """Return the ids a model is given to answer: the messages and the assistant's header.

    continues: the last message is the beginning of the answer, so it is left open instead.
    """
    chat = Chat(messages=tuple(messages), tools=tools)
    if isinstance(template, ModelTemplate):
        return template.renderer(tokenizer).render_prompt(chat, continues=continues)
    bind(template, tokenizer)
    said = read_given([chat], template)
    (spoken,) = said.by_chat()
    written = write(spoken, template, has_prompt=not continues, is_open=continues)
    return encode_writings([written], Cutter(tokenizer))[0]


def _render(
    chats: Sequence[Chat], template: Template, *, tokenizer: Tokenizer, policy: Policy
) -> Rendered:
    control_ids, cutter = bind(template, tokenizer), Cutter(tokenizer)
    said = read_given(chats, template)
    roles = np.array([ROLE_CODES[role] for role in said.roles], np.uint8)
    weights = _weights(said, roles, policy=policy)
    tight = Tight(template, cutter, control_ids)
    if tight.is_tight and len(chats):
        ids, offsets, places = _lay_out_tight(said, roles, tight, cutter)
    else:
        written = [write(chat, template) for chat in said.by_chat()]
        ids, offsets, places = encode_writings(written, cutter)
    _refuse_long_heads(places[:, 1] - places[:, 0], said)
    return Rendered(
        ids=ids,
        offsets=offsets,
        turns=turns_at(places, roles, weights),
        turn_offsets=said.turn_offsets,
    )


def _lay_out_tight(
    said: Given, roles: np.ndarray, tight: Tight, cutter: Cutter
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `encode_writings` returns, by array work over all turns at once."""
    texts, headers, named = tight.texts(said.roles, said.contents, said.names)
    encoded = cutter.encode_following(texts)
    layout = lay_out(tight, encoded, roles, turn_offsets=said.turn_offsets)
    # How many tokens of each stretch begin before its content; -1 where that is not known yet.
    begun = np.full(len(roles), -1, np.int64)
    for role, header in headers.items():
        turns = np.flatnonzero(roles == ROLE_CODES[role])
        begun[turns] = begun_before(encoded, turns, tight.header_ids(header)) if header else 0
    begun[list(named)] = -1
    for index in np.flatnonzero(begun < 0).tolist():
        place = named.get(index, len(headers[said.roles[index]]))
        try:
            begun[index] = cutter.cut_ids(texts[index], encoded[index], place, is_first=False)[1]
        except InputError as error:
            raise said.place_of(index).error(error.what, remedy=error.remedy) from error
    firsts = layout.stretches + begun
    lasts = np.maximum(firsts, layout.span_stops)
    places = np.stack((layout.starts, firsts, lasts, layout.stops), axis=1)
    places -= np.repeat(layout.offsets[:-1], np.diff(said.turn_offsets))[:, None]
    ids = assemble(encoded, layout, turn_offsets=said.turn_offsets)
    return ids, layout.offsets, places


def _weights(said: Given, roles: np.ndarray, *, policy: Policy) -> np.ndarray:
    weights = turn_weights(roles, said.turn_offsets, policy=policy)
    for index, message in enumerate(said.messages):
        if message.weight is not None:
            weights[index] = message.weight
            if not 0 <= weights[index] < np.inf:
                raise (
                    said.place_of(index)
                    .at("weight")
                    .error("not a weight", expected="a number from 0 up", actual=message.weight)
                )
    trained_results = np.flatnonzero((roles == ROLE_CODES["tool"]) & (weights > 0))
    if len(trained_results):
        raise (
            said.place_of(int(trained_results[0]))
            .at("weight")
            .error("a tool's result is never trained", remedy="leave out its weight")
        )
    return weights


def _refuse_long_heads(heads: np.ndarray, said: Given) -> None:
    long = np.flatnonzero(heads > MAX_HEAD_TOKENS)
    if len(long):
        raise (
            said.place_of(int(long[0]))
            .at("name")
            .error(
                "the header with this name is too long",
                expected=f"at most {MAX_HEAD_TOKENS:,} tokens",
                actual=int(heads[long[0]]),
            )
        )
