"""Many chats through a model's own template: ids, turn table, and what was left out.

The promise: the ids are those of `apply_chat_template(tokenize=True)` wherever a chat spells no
control token, and where it spells some, the spelling is text; what is trained is what
jinja_masks.py says. No chat depends on which others are rendered with it.
Costs: a rendering for the chat, two more for each answer where one does not tell them
(jinja_prefixes.py), one call of the tokenizer for all chats, and some microseconds per message.

Turns begin where the template's loop takes the next message up; what it writes before the first
is in no turn. Only answers are trained by a model's template: it does not say where the content
of the others begins.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2.meta import find_undeclared_variables

from tokenreel.config.hints import did_you_mean
from tokenreel.errors import ConfigError, InputError
from tokenreel.text.chats.jinja_conversation import (
    SURE_CHARACTERS,
    conversation_of,
    parts_to_find,
    quoted_arguments,
    with_other_arguments,
    without,
)
from tokenreel.text.chats.jinja_given import Conversation
from tokenreel.text.chats.jinja_masks import Masked, mask
from tokenreel.text.chats.jinja_script import Script
from tokenreel.text.chats.jinja_tokens import Cutter, Sheet, Tokens, turn_stops
from tokenreel.text.chats.messages import Chat, Place
from tokenreel.text.chats.model_template import GIVEN, SPECIAL_TOKENS
from tokenreel.text.chats.policy import Policy, remedy_of, turn_weights
from tokenreel.text.chats.prefill import cut_at_tag, with_tag
from tokenreel.text.chats.render import Rendered
from tokenreel.text.turns import ROLE_CODES, TURN

if TYPE_CHECKING:
    from tokenreel.text.chats.model_template import ModelTemplate
    from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer

_MAX_HEAD = int(np.iinfo(TURN["head"].type).max)
_WIDE_TURN = [(name, "i8" if name in ("head", "tail") else TURN[name]) for name in TURN.names or ()]
STRAYS = "answers that do not begin with the prompt that the template makes for them"
_REWRITTEN = ("tools", "documents", "tool_calls")


@lru_cache(maxsize=8)
def renderer(template: ModelTemplate, tokenizer: Any) -> ModelRenderer:
    """Return the renderer of a template for a tokenizer; compiled once for both."""
    made = ModelRenderer(template, tokenizer)
    for name in template.arguments:
        if name not in made.asked:
            raise ConfigError(
                f"the template has no argument {name!r}",
                where=template.where,
                expected=f"one of {', '.join(made.arguments)}" if made.arguments else "none",
                remedy=did_you_mean(name, made.arguments),
            )
    return made


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
        self._lock = threading.Lock()  # a compiled template renders one chat at a time

    @cached_property
    def asked(self) -> frozenset[str]:
        """The names that the template asks for anywhere, given to it or not."""
        parse = [script.program.environment.parse for script in self._scripts.values()]
        texts = [text for _, text in self._template.texts]
        trees = [read(text) for read, text in zip(parse, texts, strict=True)]
        return frozenset().union(*map(find_undeclared_variables, trees))

    @property
    def arguments(self) -> list[str]:
        """The names that it asks for and that neither chats nor tokenizers give."""
        known = {name for s in self._scripts.values() for name in s.program.environment.globals}
        return sorted(self.asked - known - GIVEN - SPECIAL_TOKENS)

    def check(self) -> None:
        """Compile every text of the template, so that what is none is known before a build."""
        for script in self._scripts.values():
            _ = script.program

    def render(self, chats: Sequence[Chat], *, policy: Policy) -> Rendered:
        """Render chats to ids and a turn table."""
        sheet, spoken, remedy = Sheet(), _Turns(), remedy_of(policy)
        unrendered = []
        with self._lock:
            for chat, weights in zip(chats, _weights(chats, policy), strict=True):
                made, conversation, script = self._masked(chat, weights, remedy)
                base = self._cutter.cut(made.output, sheet)
                spoken.add(chat, made, weights, base=base)
                unrendered.append(self._left_out(script, conversation, made))
        tokens = self._cutter.encode(sheet)
        turns, turn_offsets = spoken.table(tokens)
        long = np.flatnonzero(np.maximum(turns["head"], turns["tail"]) > _MAX_HEAD)
        if len(long):
            number = int(np.searchsorted(turn_offsets, long[0], side="right")) - 1
            raise InputError(
                "the template writes too much around an answer",
                where=str(chats[number].provenance),
                expected=f"at most {_MAX_HEAD:,} tokens",
                actual=int(max(turns[long[0]][["head", "tail"]])),
            )
        return Rendered(
            ids=tokens.ids,
            offsets=tokens.offsets,
            turns=turns.astype(TURN),
            turn_offsets=turn_offsets,
            unrendered=unrendered,
        )

    def render_prompt(self, chat: Chat, *, continues: bool = False) -> np.ndarray:
        """Return the ids that a model is given to answer a chat, or to go on with its end."""
        script, conversation = self._script(chat), conversation_of(chat)
        sheet = Sheet()
        with self._lock:
            if continues:
                output = cut_at_tag(script.render(with_tag(conversation)))
            else:
                output = script.render(conversation, add_generation_prompt=True)
        self._cutter.cut(output, sheet)
        return self._cutter.encode(sheet).ids

    def _script(self, chat: Chat) -> Script:
        """Return the text that is for this chat: as in transformers, by whether it has tools."""
        has_tools = bool(chat.tools) and "tool_use" in self._scripts
        name = "tool_use" if has_tools else "default"
        return self._scripts.get(name) or next(iter(self._scripts.values()))

    def _masked(
        self, chat: Chat, weights: Sequence[float], remedy: str
    ) -> tuple[Masked, Conversation, Script]:
        script, conversation = self._script(chat), conversation_of(chat)
        trained = [index for index, weight in enumerate(weights) if weight > 0]
        try:
            made = mask(script, conversation, trained, remedy=remedy)
            if not quoted_arguments(conversation, made.output.text):
                return made, conversation, script
            failure = None
        except (InputError, ConfigError) as error:
            failure = error
        other = with_other_arguments(conversation)
        try:
            if other is None:
                raise failure or AssertionError("quoted arguments are arguments")
            return mask(script, other, trained, remedy=remedy), other, script
        except (InputError, ConfigError) as error:
            raise _located(failure or error, chat) from error

    def _left_out(self, script: Script, conversation: Conversation, made: Masked) -> Sequence[str]:
        """Return what of a conversation is not in its output, each kind in words."""
        left: dict[str, str] = {}
        for name, role, text in parts_to_find(conversation):
            if not text or name in left:
                continue
            # A short text is in an output by chance; tools and calls may be written otherwise.
            is_sure = len(text) >= SURE_CHARACTERS or name == "reasoning_content"
            is_there = text in made.output.text
            if is_sure and is_there:
                continue
            if (is_there or name in _REWRITTEN) and _shows(script, conversation, made, name, role):
                continue
            left[name] = (
                f"{name} of {'messages' if role else 'chats'}, not rendered by the template"
            )
        for name in conversation.args:
            if name not in self.asked:
                left[f"{name}="] = f"{name!r} of chat_template_kwargs, no argument of the template"
        if made.strays:
            left["strays"] = STRAYS
        return list(left.values())


def _shows(script: Script, conversation: Conversation, made: Masked, name: str, role: str) -> bool:
    """Tell, by a rendering without it, whether a template renders a field of a chat."""
    try:
        return script.render(without(conversation, name, role)).text != made.output.text
    except InputError:  # a template that cannot do without it
        return True


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


class _Turns:
    """The turns of many chats on one sheet, one for each message, and their trained spans."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._weights: list[float] = []
        self._roles: list[int] = []
        self._is_trained: list[bool] = []
        self._spans: list[int] = []  # start and stop of each
        self._span_turns: list[int] = []
        self._num_turns: list[int] = []

    def add(self, chat: Chat, made: Masked, weights: Sequence[float], *, base: int) -> None:
        """Add the turns of a chat that begins at `base`."""
        begins = _begins(made, len(chat.messages))
        self._num_turns.append(len(begins))
        for index, place in begins.items():
            spans = made.spans.get(index)
            for start, stop in spans or ():
                self._spans += (base + start, base + stop)
                self._span_turns.append(len(self._places))
            self._places.append(base + place)
            self._weights.append(weights[index])
            self._roles.append(ROLE_CODES[chat.messages[index].role])
            self._is_trained.append(spans is not None)

    def table(self, tokens: Tokens) -> tuple[np.ndarray, np.ndarray]:
        """Return the turns, int64 heads and tails, and where those of each chat begin [chats + 1].

        A message that wrote nothing has no turn, unless it is trained. A turn has one trained
        span: where there are more, the turn is cut between them.
        """
        ended, begun = tokens.around(self._places + self._spans)
        num_places = len(self._places)
        num_turns = np.array(self._num_turns, np.int64)
        starts = begun[:num_places]
        stops = turn_stops(starts, num_turns, tokens.offsets)
        owners = np.array(self._span_turns, np.int64)
        firsts = np.maximum(begun[num_places::2], starts[owners])
        lasts = np.minimum(ended[num_places + 1 :: 2], stops[owners])
        owners, firsts, lasts = (part[firsts < lasts] for part in (owners, firsts, lasts))
        num_spans = np.bincount(owners, minlength=num_places)
        num_rows = np.where(
            (starts < stops) | np.array(self._is_trained, bool), np.maximum(num_spans, 1), 0
        )
        rows = np.repeat(np.arange(num_places), num_rows)  # the turn of each row
        starts, stops = starts[rows], stops[rows]
        has_span = num_spans[rows] > 0
        spans = np.stack((starts, stops))
        spans[:, has_span] = firsts, lasts
        more = np.flatnonzero(rows[1:] == rows[:-1])
        stops[more] = starts[more + 1] = spans[1, more]
        table = np.zeros(len(rows), _WIDE_TURN)
        chats = np.repeat(np.arange(len(num_turns)), num_turns)[rows]
        table["start"], table["length"] = starts - tokens.offsets[chats], stops - starts
        table["head"] = np.where(has_span, spans[0] - starts, 0)
        table["tail"] = np.where(has_span, stops - spans[1], 0)
        table["weight"] = np.where(has_span, np.array(self._weights)[rows], 0)
        table["role"] = np.array(self._roles, np.uint8)[rows]
        counts = np.bincount(chats, minlength=len(num_turns))
        return table, np.concatenate(([0], np.cumsum(counts)))


def _begins(made: Masked, num_messages: int) -> dict[int, int]:
    """Return where in the text the turn of each message begins, in order.

    Where the template tells no starts, a trained message begins with its span, and what stands
    before belongs to the message before. The end of an answer that the template writes with the
    next message belongs to the answer.
    """
    begins: dict[int, int] = {}
    spoken = 0  # where the last trained span before ends
    for index in range(num_messages):
        place = made.output.starts.get(index)
        spans = made.spans.get(index)
        if spans:
            place = spans[0][0] if place is None else place
        if place is not None:
            begins[index] = max(place, spoken)
        spoken = spans[-1][1] if spans else spoken
    if not begins:
        return {num_messages - 1: 0}
    first = min(begins)
    return {first - 1: 0, **begins} if first > 0 else begins
