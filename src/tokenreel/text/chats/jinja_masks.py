"""Which characters of a rendered chat are trained: what the model itself will have to say.

With {% generation %} in the template, the spans it marks. Without, an answer begins behind its
prompt, as `add_generation_prompt` renders it for the messages before, and ends with the last
control token that the template writes for it (blanks behind that one are the tail), or where the
next message begins.

Both are checked by the prefix property, for every answer that is trained: what the template
writes for messages[:i + 1] up to the end of the answer is what the whole chat begins with. A
template that rewrites earlier answers (drops their reasoning, ends them with another token)
breaks it: the model would be trained on answers that it never gives. Such a chat is refused with
the remedy: the policies `each_answer` and `last_answer` make documents that end with the answer
which they train. What a template writes behind the last message is no part of that.

The prompt may go further than an answer follows it: templates of reasoning models open with
`<think>` for the model, and render an answer without reasoning without it. Then the answer
begins where the two part, and the answer is counted (`strays`): served with that prompt, the
model will not be where it was trained.

Each check is a rendering, so what is alike is checked once (`Checks`): messages are of one kind
if they have the same role and fields of the same types, empty or not (a number: zero or not), and
the same of the texts that the template looks for anywhere. Checks are kept for one call of the
renderer: no chat depends on which chats other calls have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tokenreel.errors import InputError
from tokenreel.text.chats.jinja_script import Conversation, Output, Script
from tokenreel.text.chats.jinja_trace import is_number
from tokenreel.text.chats.policy import REMEDY

Span = tuple[int, int]
Kind = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """A rendered chat, and the spans of characters that each trained message is trained on.

    strays: how many of these do not begin with the prompt that the template makes for them.
    compared: how far the text behind the begin of a message was compared with its prompt, for
    those whose spans were found that way.
    """

    output: Output
    spans: Mapping[int, Sequence[Span]]
    strays: int = 0
    compared: Mapping[int, int] = field(default_factory=dict)

    def begins(self, num_messages: int) -> list[tuple[int, int | None]]:
        """Return the messages that have turns, and where these begin; None is the very beginning.

        Where the template tells no starts, a trained message begins with its span, and what
        stands before belongs to the message before.
        """
        begins: dict[int, int | None] = {}
        for index in range(num_messages):
            place = self.output.starts.get(index)
            if place is None and index in self.spans:
                place = self.spans[index][0][0]
            if place is not None:
                begins[index] = place
        if not begins:
            return [(num_messages - 1, None)]
        if min(begins) > 0:
            begins[min(begins) - 1] = None
        return sorted(begins.items())


@dataclass(frozen=True, slots=True)
class Checks:
    """What one call has checked: prompts by the kinds around them, and chats by all their kinds."""

    prompts: dict[Kind, Output] = field(default_factory=dict)
    chats: set[Kind] = field(default_factory=set)


def kinds_of(script: Script, conversation: Conversation) -> tuple[Kind, tuple[Kind, ...]]:
    """Return the kind of what is around the messages of a chat, and those of the messages."""
    sought = script.program.sought
    around = (
        id(script),
        bool(conversation.tools),
        bool(conversation.documents),
        repr(conversation.args) if conversation.args else "",
    )
    return around, tuple([_kind(message, sought) for message in conversation.messages])


def mask(
    script: Script, conversation: Conversation, trained: Sequence[int], checks: Checks
) -> Masked:
    """Render a chat and find the spans of its trained messages, which are answers."""
    whole = script.render(conversation)
    if not trained:
        return Masked(output=whole, spans={})
    search = _Search(script, conversation, whole, checks)
    stops = search.stops(trained)
    if script.program.has_generation:
        spans, starts = _marked(whole, conversation, trained), {}
    else:
        starts = {index: search.start(index) for index in trained}
        spans = {
            index: [(begin.place, _end(whole, begin.place, stops[index]))]
            for index, begin in starts.items()
        }
    for index, parts in spans.items():
        if not any(start < stop for start, stop in parts):
            raise InputError(
                f"message {index + 1}: the template renders nothing for this answer",
                remedy="leave the message out, or give it weight 0",
            )
    return Masked(
        output=whole,
        spans=spans,
        strays=sum(begin.is_stray for begin in starts.values()),
        compared={index: begin.compared for index, begin in starts.items()},
    )


class _Begin(NamedTuple):
    """Where an answer begins; whether its prompt goes on otherwise; how far both were compared."""

    place: int
    is_stray: bool
    compared: int


class _Search:
    """The begin and end of answers in one rendered chat."""

    def __init__(
        self, script: Script, conversation: Conversation, whole: Output, checks: Checks
    ) -> None:
        self._script = script
        self._conversation = conversation
        self._whole = whole
        self._checks = checks
        self._around, self._kinds = kinds_of(script, conversation)

    def stops(self, trained: Sequence[int]) -> dict[int, int]:
        """Return where answers stop; InputError if one is another without what follows."""
        last = len(self._kinds) - 1
        chat = (self._around, self._kinds, tuple(trained))
        is_known = chat in self._checks.chats
        seen: set[Kind] = set()
        stops: dict[int, int] = {}
        for index in trained:
            kind = self._kinds[max(0, index - 1) : index + 2]
            place = self._whole.starts.get(index + 1)
            if index == last:
                stops[index] = len(self._whole.text)
            elif place is not None and (is_known or kind in seen):
                stops[index] = place
            else:
                stops[index] = self._checked_stop(index, place)
                seen.add(kind)
        self._checks.chats.add(chat)
        return stops

    def _checked_stop(self, index: int, place: int | None) -> int:
        ended = self._script.render(self._conversation.first(index + 1))
        # The next message may be written into the answer; or something behind the last message.
        for stop in (place, len(ended.text)):
            if stop is not None and ended.agrees_with(self._whole, stop):
                return stop
        raise _broken(index, self._whole, ended)

    def start(self, index: int) -> _Begin:
        """Return where an answer begins: where its prompt stops, or goes on in another way."""
        whole, begins = self._whole, self._whole.starts.get(index)
        if index == 0:
            return _Begin(begins or 0, False, begins or 0)
        key = (*self._around, *self._kinds[index - 1 : index + 1])
        known = self._checks.prompts.get(key)
        if begins is None or known is None:
            prompt = self._script.render(
                self._conversation.first(index), add_generation_prompt=True
            )
            shared = prompt.shared_with(whole)
            if shared < (begins or 1):
                raise _broken(index, whole, prompt)
            if begins is None:
                return _Begin(shared, shared < len(prompt.text), len(whole.text))
            known = self._checks.prompts[key] = _behind(prompt, begins)
        there = tuple((a - begins, b - begins, c) for a, b, c in whole.controls if a >= begins)
        rest = replace(
            known, text=whole.text[begins : begins + len(known.text) + 1], controls=there
        )
        shared = known.shared_with(rest)
        is_stray = shared < len(known.text)
        # Where the prompt has a control token, no text goes on as it does.
        by_control = any(start == shared for start, _, _ in known.controls)
        return _Begin(begins + shared, is_stray, begins + shared + (is_stray and not by_control))


def _behind(output: Output, place: int) -> Output:
    controls = tuple((a - place, b - place, c) for a, b, c in output.controls if a >= place)
    return Output(text=output.text[place:], controls=controls, generation=(), starts={})


def _kind(message: Mapping[str, Any], sought: Sequence[str]) -> Kind:
    """Return what a template can tell of a message, short of its words."""
    content = message.get("content")
    if len(message) == 2 and type(content) is str:
        found = tuple([c for c in sought if c in content]) if sought else ()
        return message["role"], not content, content.isspace(), found
    fields = tuple([(key, _shape(value)) for key, value in message.items() if key != "role"])
    texts = [value for value in message.values() if isinstance(value, str)]
    # Most texts are found nowhere; what is found in all of them together is looked for in each.
    together = "".join(texts)
    found = tuple([c for c in sought if c in together and any(c in text for text in texts)])
    return message.get("role"), fields, found


def _shape(value: Any) -> Kind:
    if isinstance(value, str):
        return "str", bool(value), not value.isspace()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, *map(_shape, value)
    if isinstance(value, dict):
        return "dict", *((key, _shape(item)) for key, item in value.items())
    if is_number(value):
        return type(value).__name__, bool(value)
    return (repr(value),)


def last_control(whole: Output, start: int, stop: int) -> int | None:
    """Return the end of the last control token in a range, or None if it has none."""
    ends = [end for begin, end, _ in whole.controls if start <= begin and end <= stop]
    return ends[-1] if ends else None


def _end(whole: Output, start: int, stop: int) -> int:
    """Return the end of the control token that ends an answer, or `stop` if none does."""
    end = last_control(whole, start, stop)
    return stop if end is None or whole.text[end:stop].strip() else end


def _marked(
    whole: Output, conversation: Conversation, trained: Sequence[int]
) -> dict[int, Sequence[Span]]:
    """Return the spans of {% generation %}, each given to the message in whose place it is."""
    answers = [
        index
        for index, message in enumerate(conversation.messages)
        if message.get("role") == "assistant"
    ]
    starts = [whole.starts.get(index, -1) for index in answers]
    spans: dict[int, list[Span]] = {index: [] for index in trained}
    if -1 in starts and len(answers) > 1 and len(whole.generation) != len(answers):
        raise InputError("the marks of {% generation %} cannot be told apart by messages")
    for number, span in enumerate(whole.generation):
        if -1 in starts:
            owner = answers[min(number, len(answers) - 1)]
        else:
            before = [i for i, start in zip(answers, starts, strict=True) if start <= span[0]]
            owner = before[-1] if before else answers[0]
        if owner in spans and span[0] < span[1]:
            spans[owner].append(span)
    return {**spans}


def _broken(index: int, whole: Output, alone: Output) -> InputError:
    place = alone.shared_with(whole)
    return InputError(
        f"message {index + 1}: the template renders this answer, or what leads to it, in another "
        "way when more messages follow",
        expected=_excerpt(alone.text, place),
        actual=_excerpt(whole.text, place),
        remedy=REMEDY,
    )


def _excerpt(text: str, place: int) -> str:
    return repr(text[max(0, place - 20) : place + 30])
