"""Many chats through a model's own template: ids, turn table, and what was left out.

The promise: the ids are those of `apply_chat_template(tokenize=True)` wherever a chat spells no
control token, and where it spells some, the spelling is text; what is trained is what
jinja_masks.py says. Costs: the first two chats of a kind are rendered, and checked by another
rendering or two; those that follow are written by the skeleton of their kind (jinja_skeleton.py),
some 20 microseconds each. The tokenizer is called once for all.

Only answers are trained by a model's template: it does not say where the content of the others
begins.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import ConfigError, InputError
from tokenreel.text.chats.jinja_conversation import (
    SURE_CHARACTERS,
    conversation_of,
    parts_to_find,
    quoted_arguments,
    with_other_arguments,
    without,
)
from tokenreel.text.chats.jinja_masks import Checks, Masked, kinds_of, mask
from tokenreel.text.chats.jinja_rows import Block, fixed_rows, rows_of, turn_table
from tokenreel.text.chats.jinja_script import Conversation, Script
from tokenreel.text.chats.jinja_skeleton import Skeleton, Skeletons
from tokenreel.text.chats.jinja_tokens import Cut, Cutter, Places, Texts, assemble
from tokenreel.text.chats.messages import Chat, Place
from tokenreel.text.chats.policy import Policy, turn_weights
from tokenreel.text.chats.render import Rendered
from tokenreel.text.turns import ROLE_CODES, TURN

if TYPE_CHECKING:
    from tokenreel.text.chats.model_template import ModelTemplate
    from tokenreel.text.tokenizers.tokenizer_protocol import Encoded, Tokenizer

STRAYS = "answers that do not begin with the prompt that the template makes for them"
_REWRITTEN = ("tools", "documents", "tool_calls")


@lru_cache(maxsize=8)
def renderer(template: ModelTemplate, tokenizer: Any) -> ModelRenderer:
    """Return the renderer of a template for a tokenizer; compiled once for both."""
    return ModelRenderer(template, tokenizer)


class ModelRenderer:
    """A model's template, compiled for a tokenizer."""

    def __init__(self, template: ModelTemplate, tokenizer: Tokenizer) -> None:
        self._template = template
        self._cutter = Cutter(tokenizer)
        self._scripts = {
            name: Script(
                text,
                tuple(tokenizer.control_ids),
                special_tokens=dict(template.special_tokens),
                args=template.arguments,
                today=template.date,
                where=template.where if name == "default" else f"{template.where}, {name!r}",
            )
            for name, text in template.texts
        }
        self._shown: dict[tuple[str, str], bool] = {}
        self._lock = threading.Lock()  # a compiled template renders one chat at a time

    def check(self) -> None:
        """Compile every text of the template, so that what is none is known before a build."""
        for script in self._scripts.values():
            _ = script.program

    def render(self, chats: Sequence[Chat], *, policy: Policy) -> Rendered:
        """Render chats to ids and a turn table."""
        work = _Work(chats, _weights(chats, policy), Skeletons(self._cutter, Texts()))
        with self._lock:
            self._shown.clear()  # no chat depends on what other calls have seen
            for number in range(len(chats)):
                self._add(work, number)
            encoded = self._cutter.encode(work.skeletons.texts)
            tables = self._tables(work, encoded)
        ids, offsets = assemble(work.cuts, encoded)
        counts = np.zeros(len(chats) + 1, np.int64)
        for numbers, table in tables:
            counts[numbers + 1] = table.shape[1]
        turn_offsets = np.cumsum(counts)
        turns = np.zeros(turn_offsets[-1], TURN)
        for numbers, table in tables:
            turns[turn_offsets[numbers, None] + np.arange(table.shape[1])] = table
        return Rendered(
            ids=ids,
            offsets=offsets,
            turns=turns,
            turn_offsets=turn_offsets,
            unrendered=work.unrendered,
        )

    def _add(self, work: _Work, number: int) -> None:
        """Write one chat, by a skeleton of its kind or by the template."""
        chat, weights = work.chats[number], work.weights[number]
        script, conversation = self._script(chat), conversation_of(chat)
        trained = tuple([index for index, weight in enumerate(weights) if weight > 0])
        tools = repr(conversation.tools) if conversation.tools else ""
        key = (*kinds_of(script, conversation), tools, trained)
        fit = work.skeletons.fit(key, script, conversation)
        if fit is not None:
            skeleton, codes, values = fit
            if not (has_parts := _has_parts(conversation)):
                text = ""
            elif quoted_arguments(conversation, text := skeleton.text % values):
                fit = None
        if fit is None:
            made, seen = self._masked(chat, script, conversation, trained, work.checks)
            if seen is conversation:
                work.skeletons.learn(key, script, conversation, made)
            work.rendered.append((number, made))
            work.cuts.append(self._cutter.cut(made.output, work.skeletons.texts))
            left_out = self._left_out(script, seen, made.output.text)
            strays = made.strays
        else:
            work.blocks.setdefault(id(skeleton), (skeleton, []))[1].append(number)
            work.cuts.append(Cut(codes=codes))
            left_out = self._left_out(script, conversation, text) if has_parts else []
            strays = skeleton.strays
        work.unrendered.append([*left_out, STRAYS] if strays else left_out)

    def _tables(self, work: _Work, encoded: Encoded) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the turns of all chats: numbers of chats, int64 [n], and TURN [n, rows]."""
        tables = []
        texts = [text for _, text in work.skeletons.texts.numbers]
        for skeleton, members in work.blocks.values():
            numbers = np.array(members)
            block = Block(
                skeleton=skeleton,
                codes=np.array([work.cuts[number].codes for number in members]),
                weights=np.array([work.weights[number] for number in members]),
                roles=[ROLE_CODES[m.role] for m in work.chats[members[0]].messages],
            )
            rows, holds = fixed_rows(block, self._cutter, encoded, texts.__getitem__)
            tables.append((numbers[holds], rows[holds]))
            for number in numbers[~holds].tolist():
                self._render_again(work, number)
        lengths = np.diff(encoded.offsets).tolist()
        for number, made in work.rendered:
            cut = work.cuts[number]
            places = Places(self._cutter, made.output, cut, encoded=encoded, lengths=lengths)
            rows = turn_table(rows_of(work.chats[number], made, work.weights[number], places))
            tables.append((np.array([number]), rows[None]))
        return tables

    def _render_again(self, work: _Work, number: int) -> None:
        """Render a chat whose tokens are not where they are in others of its skeleton."""
        chat, weights = work.chats[number], work.weights[number]
        trained = [index for index, weight in enumerate(weights) if weight > 0]
        made, _ = self._masked(
            chat, self._script(chat), conversation_of(chat), trained, work.checks
        )
        work.rendered.append((number, made))
        work.cuts[number] = self._cutter.cut(made.output, work.skeletons.texts)

    def render_prompt(self, chat: Chat) -> np.ndarray:
        """Return the ids that a model is given to answer a chat."""
        script, conversation = self._script(chat), conversation_of(chat)
        texts = Texts()
        with self._lock:
            output = script.render(conversation, add_generation_prompt=True)
        cut = self._cutter.cut(output, texts)
        return assemble([cut], self._cutter.encode(texts))[0]

    def _script(self, chat: Chat) -> Script:
        """Return the text that is for this chat: as in transformers, by whether it has tools."""
        has_tools = bool(chat.tools) and "tool_use" in self._scripts
        name = "tool_use" if has_tools else "default"
        return self._scripts.get(name) or next(iter(self._scripts.values()))

    def _masked(
        self,
        chat: Chat,
        script: Script,
        conversation: Conversation,
        trained: Sequence[int],
        checks: Checks,
    ) -> tuple[Masked, Conversation]:
        """Return a rendered chat, and the conversation that was rendered."""
        try:
            made = mask(script, conversation, trained, checks)
            if not quoted_arguments(conversation, made.output.text):
                return made, conversation
            failure = None
        except (InputError, ConfigError) as error:
            failure = error
        other = with_other_arguments(conversation)
        try:
            if other is None:
                raise failure or AssertionError("quoted arguments are arguments")
            return mask(script, other, trained, checks), other
        except (InputError, ConfigError) as error:
            raise _located(failure or error, chat) from error

    def _left_out(self, script: Script, conversation: Conversation, output: str) -> list[str]:
        """Return what of a conversation is not in its output, each kind in words."""
        left: dict[str, str] = {}
        for name, role, text in parts_to_find(conversation):
            if not text or name in left:
                continue
            # A short text is in an output by chance; tools and calls may be written otherwise.
            is_sure = len(text) >= SURE_CHARACTERS or name == "reasoning_content"
            is_there = text in output
            if is_sure and is_there:
                continue
            if (is_there or name in _REWRITTEN) and self._shows(script, conversation, name, role):
                continue
            left[name] = (
                f"{name} of {'messages' if role else 'chats'}, not rendered by the template"
            )
        return list(left.values())

    def _shows(self, script: Script, conversation: Conversation, name: str, role: str) -> bool:
        """Tell, by one rendering for each kind, whether a template renders a field at all."""
        if (name, role) not in self._shown:
            try:
                before = script.render(conversation).text
                after = script.render(without(conversation, name, role)).text
                self._shown[name, role] = before != after
            except InputError:  # a template that cannot do without it
                self._shown[name, role] = True
        return self._shown[name, role]


@dataclass(slots=True)
class _Work:
    """The chats of one call, and what was made of them so far.

    rendered: those that went through the template; blocks: those of each skeleton.
    """

    chats: Sequence[Chat]
    weights: Sequence[Sequence[float]]
    skeletons: Skeletons
    checks: Checks = field(default_factory=Checks)
    cuts: list[Cut] = field(default_factory=list)
    rendered: list[tuple[int, Masked]] = field(default_factory=list)
    blocks: dict[int, tuple[Skeleton, list[int]]] = field(default_factory=dict)
    unrendered: list[Sequence[str]] = field(default_factory=list)


def _has_parts(conversation: Conversation) -> bool:
    """Tell whether a chat has more than roles and contents, which a template may leave out."""
    if conversation.tools or conversation.documents:
        return True
    return any(len(message) > 2 for message in conversation.messages)


def _weights(chats: Sequence[Chat], policy: Policy) -> list[list[float]]:
    """Return the weight of each message of each chat; only answers have one above 0."""
    offsets = np.cumsum([0, *(len(chat.messages) for chat in chats)])
    roles = np.array([ROLE_CODES[m.role] for chat in chats for m in chat.messages], np.uint8)
    flat = turn_weights(roles, offsets, policy=policy).tolist()
    weights = [flat[start:stop] for start, stop in pairwise(offsets.tolist())]
    for chat, own in zip(chats, weights, strict=True):
        for index, message in enumerate(chat.messages):
            if message.weight is not None:
                own[index] = message.weight
            if own[index] > 0 and message.role != "assistant":
                raise Place(provenance=chat.provenance, message=index + 1).error(
                    "a model's own template trains answers alone: it does not say where other "
                    "messages begin",
                    expected="weight 0",
                    actual=own[index],
                    remedy='use a template of TOML, or policy="assistant"',
                )
    return weights


def _located(error: InputError | ConfigError, chat: Chat) -> InputError | ConfigError:
    if error.where is not None:
        return error
    return InputError(
        error.what,
        where=str(chat.provenance),
        expected=error.expected,
        actual=error.actual,
        remedy=error.remedy,
    )
