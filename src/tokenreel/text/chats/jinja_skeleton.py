"""Chats of one kind written without their template: constants, and slots for their texts.

A kind of chat (jinja_masks.py) that comes up a second time in a call is traced (jinja_trace.py).
The chats of that kind that follow are then written by the skeleton: the same stretches, control
tokens, turns and trained spans, without a rendering. A chat goes back to the template
- where a guard gives another answer, or a slot is empty;
- where it has characters of our own planes, or may spell a control token;
- where it is so long that the template's bounds could be reached.
A kind has no skeleton where a place (begin of a turn, begin or end of what is trained) depends on
what the texts say, or where control tokens swallow blanks.

    stretches    <|im_start|>   user\\n{0}   <|im_end|>   \\n   <|im_start|>   assistant\\n{1}   …
    line         "user\\n{0}\\0assistant\\n{1}"     the stretches that vary, written in one step
    Spot(5, 10)  ten characters behind the begin of stretch 5: what is trained begins here
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.chats.jinja_masks import Masked, last_control
from tokenreel.text.chats.jinja_sandbox import MIN_CHARACTERS
from tokenreel.text.chats.jinja_script import (
    Control,
    Conversation,
    Output,
    Script,
    all_text,
)
from tokenreel.text.chats.jinja_shadows import has_ours
from tokenreel.text.chats.jinja_tokens import Cutter, Texts
from tokenreel.text.chats.jinja_trace import Messages, Slot, Text, Trace

MAX_SKELETONS = 4  # of one kind of chat; each that does not fit costs some microseconds
_BREAK = "\0"  # between the stretches of a line; a chat that has it goes through the template

Part = str | Slot


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of text, or a control token.

    start, stops: where it begins and where its parts stop, in characters of the traced chat.
    """

    start: int
    stops: tuple[int, ...]
    parts: tuple[Part, ...]
    control: str | None = None

    @property
    def stop(self) -> int:
        """Where the stretch stops in the traced chat."""
        return self.stops[-1]


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a skeleton: so many characters behind the begin of a stretch.

    Behind its end, where `behind` is below 0.
    """

    stretch: int
    behind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message of a skeleton: where it begins (None is the first token), and what is trained."""

    message: int
    begin: Spot | None
    spans: tuple[tuple[Spot, Spot], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """What is alike in all chats of one kind that give the same answers to the template."""

    trace: Trace
    slots: tuple[Slot, ...]
    line: str
    text: str
    codes: Sequence[int]
    varying: Sequence[int]
    stretches: Sequence[Stretch]
    turns: Sequence[Turn]
    strays: int

    def values(self, messages: Messages, num_characters: int) -> tuple[str, ...] | None:
        """Return the texts of the slots, or None if the template may write something else."""
        trace = self.trace
        if num_characters * trace.growth + trace.num_constant > MIN_CHARACTERS:
            return None
        for question, answer in trace.guards:
            if question(messages) != answer:
                return None
        values = tuple([slot.get(messages) for slot in self.slots])
        return values if all(values) else None


@dataclass(slots=True)
class _Kind:
    """What is known of one kind of chat: its skeletons, and how often none was found."""

    num_rendered: int = 0
    skeletons: list[Skeleton] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Skeletons:
    """The skeletons of one call of the renderer, by the kinds of its chats."""

    cutter: Cutter
    texts: Texts
    kinds: dict[Any, _Kind] = field(default_factory=dict)

    def fit(
        self, key: Any, script: Script, conversation: Conversation
    ) -> tuple[Skeleton, list[int], tuple[str, ...]] | None:
        """Return a skeleton for a chat, the codes of its stretches, and the texts of its slots."""
        kind = self.kinds.get(key)
        if kind is None or not kind.skeletons:
            return None
        sample = _plain_text(conversation.messages)
        if sample is None:
            return None
        for skeleton in kind.skeletons:
            values = skeleton.values(conversation.messages, len(sample))
            if values is not None:
                line = skeleton.line % values
                if script.spells(line):
                    return None
                return skeleton, self._codes(skeleton, line), values
        return None

    def _codes(self, skeleton: Skeleton, line: str) -> list[int]:
        codes, add = list(skeleton.codes), self.texts.add
        is_first = self.cutter.has_first
        for index, text in zip(skeleton.varying, line.split(_BREAK), strict=True):
            codes[index] = add(text, is_first=is_first and index == 0)
        return codes

    def learn(self, key: Any, script: Script, conversation: Conversation, made: Masked) -> None:
        """Trace a chat that was rendered, if it is the second of its kind or a later one."""
        kind = self.kinds.setdefault(key, _Kind())
        kind.num_rendered += 1
        if not 1 < kind.num_rendered <= 1 + MAX_SKELETONS or conversation.documents:
            return
        if _plain_text([conversation.messages, conversation.tools, conversation.args]) is None:
            return
        found = script.trace(conversation)
        if found is None:
            return
        skeleton = self._skeleton(script, conversation, made, *found)
        if skeleton is not None:
            kind.skeletons.append(skeleton)

    def _skeleton(
        self, script: Script, conversation: Conversation, made: Masked, trace: Trace, output: Text
    ) -> Skeleton | None:
        stretches = _stretches(script, output.parts, conversation.messages, made.output)
        if stretches is None or self.cutter.strips(token for _, _, token in made.output.controls):
            return None
        turns = _turns(script, made, stretches, len(conversation.messages))
        if turns is None:
            return None
        return self._written(stretches, trace=trace, turns=turns, strays=made.strays)

    def _written(
        self, stretches: Sequence[Stretch], *, trace: Trace, turns: Sequence[Turn], strays: int
    ) -> Skeleton:
        codes, varying = [], []
        for index, stretch in enumerate(stretches):
            if stretch.control is not None:
                codes.append(self.cutter.code(stretch.control))
            elif any(isinstance(part, Slot) for part in stretch.parts):
                varying.append(index)
                codes.append(0)
            else:
                is_first = self.cutter.has_first and index == 0
                codes.append(self.texts.add("".join(map(str, stretch.parts)), is_first=is_first))
        lines = [_format(stretches[index].parts) for index in varying]
        return Skeleton(
            trace=trace,
            slots=tuple(p for s in stretches for p in s.parts if isinstance(p, Slot)),
            line=_BREAK.join(lines),
            text="".join(_format(stretch.parts) for stretch in stretches),
            codes=codes,
            varying=varying,
            stretches=stretches,
            turns=turns,
            strays=strays,
        )


def _plain_text(value: Any) -> str | None:
    """Return every string of a value as one, or None if the template has to look at it."""
    try:
        text = all_text(value)
    except InputError:  # the rendering says where
        return None
    return None if _BREAK in text or has_ours(text) else text


def _format(parts: Sequence[Part]) -> str:
    return "".join(p.replace("%", "%%") if isinstance(p, str) else "%s" for p in parts)


def _stretches(
    script: Script, parts: Sequence[Part], messages: Messages, output: Output
) -> list[Stretch] | None:
    """Return what a template wrote, cut at its control tokens; None if a slot has part in one."""
    text, controls, place = "", list(output.controls), 0
    cuts = sorted({side for start, stop, _ in controls for side in (start, stop)})
    pieces: list[tuple[Part, int]] = []  # with the place where each stops
    for part in _constants_joined(script, parts):
        said = part if isinstance(part, str) else part.get(messages)
        inner = [cut - place for cut in cuts if place < cut < place + len(said)]
        if not said or (inner and isinstance(part, Slot)):
            return None
        for start, stop in pairwise((0, *inner, len(said))):
            pieces.append((said[start:stop] if isinstance(part, str) else part, place + stop))
        place += len(said)
        text += said
    return _grouped(pieces, controls) if text == output.text else None


def _grouped(
    pieces: Sequence[tuple[Part, int]], controls: Sequence[Control]
) -> list[Stretch] | None:
    """Return pieces, of which none reaches over a border of a control token, as stretches."""
    tokens = {(start, stop): token for start, stop, token in controls}
    stretches: list[Stretch] = []
    held: list[Part] = []
    stops: list[int] = []
    begin = place = num_found = 0
    for part, stop in (*pieces, ("", -1)):
        token = tokens.get((place, stop)) if isinstance(part, str) else None
        if held and (token is not None or stop < 0):
            stretches.append(Stretch(begin, tuple(stops), tuple(held)))
            held, stops = [], []
        if token is not None:
            stretches.append(Stretch(place, (stop,), (part,), token))
            begin, num_found = stop, num_found + 1
        else:
            held.append(part)
            stops.append(stop)
        place = stop
    return stretches if num_found == len(controls) else None


def _constants_joined(script: Script, parts: Sequence[Part]) -> Iterator[Part]:
    """Yield the slots, and what is constant between them as it is spelled."""
    literal = ""
    for part in parts:
        if isinstance(part, str):
            literal += part
            continue
        if literal:
            yield script.spelled(literal)
        yield part
        literal = ""
    if literal:
        yield script.spelled(literal)


def _turns(
    script: Script, made: Masked, stretches: Sequence[Stretch], num_messages: int
) -> list[Turn] | None:
    """Return the turns of a skeleton, or None if a place in them depends on what texts say."""
    if not script.program.has_generation and not _has_fixed_spans(made, stretches, num_messages):
        return None
    turns = []
    for message, place in made.begins(num_messages):
        begin = None if place is None else _spot(stretches, place)
        spans = [
            (_spot(stretches, start), _spot(stretches, stop))
            for start, stop in made.spans.get(message, ())
        ]
        if (place is not None and begin is None) or any(None in span for span in spans):
            return None
        turns.append(Turn(message=message, begin=begin, spans=tuple(spans)))  # type: ignore[arg-type]
    return turns


def _has_fixed_spans(made: Masked, stretches: Sequence[Stretch], num_messages: int) -> bool:
    """Tell whether trained spans that were found by prompts are where they are for any texts.

    So it is if all that was compared with the prompt, and all that was asked for blanks behind
    the last control token, is constant.
    """
    output = made.output
    for message, ((start, _),) in made.spans.items():
        begin = output.starts.get(message)
        is_last = message == num_messages - 1
        stop = len(output.text) if is_last else output.starts.get(message + 1)
        if begin is None or stop is None:
            return False
        end = last_control(output, start, stop)
        if not _is_constant(stretches, begin, made.compared[message]):
            return False
        if end is not None and not _is_constant(stretches, end, stop):
            return False
    return True


def _is_constant(stretches: Sequence[Stretch], start: int, stop: int) -> bool:
    """Tell whether no slot has a character in a range of the traced chat."""
    return not any(
        isinstance(part, Slot) and first < stop and start < last
        for stretch in stretches
        for part, (first, last) in zip(
            stretch.parts, pairwise((stretch.start, *stretch.stops)), strict=True
        )
    )


def _spot(stretches: Sequence[Stretch], place: int) -> Spot | None:
    """Return a place of the traced chat as a spot of the skeleton, if it is one for all chats."""
    for index, stretch in enumerate(stretches):
        if place == stretch.start:
            return Spot(index, 0)
        if place < stretch.stop:
            break
    else:
        return Spot(len(stretches), 0)
    if stretch.control is not None:
        return None
    if _is_constant(stretches, stretch.start, place):
        return Spot(index, place - stretch.start)
    if _is_constant(stretches, place, stretch.stop):
        return Spot(index, place - stretch.stop)
    return None
