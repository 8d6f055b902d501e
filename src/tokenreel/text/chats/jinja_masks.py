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
if they have the same role and fields, empty or not, and the same of the texts that the template
looks for anywhere. Checks are kept for one call of the renderer: no chat depends on which chats
other calls have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.chats.jinja_script import Control, Conversation, Output, Script
from tokenreel.text.chats.policy import REMEDY

Span = tuple[int, int]
Kind = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """A rendered chat, and the spans of characters that each trained message is trained on.

    strays: how many of these do not begin with the prompt that the template makes for them.
    """

    output: Output
    spans: Mapping[int, Sequence[Span]]
    strays: int = 0


@dataclass(frozen=True, slots=True)
class Checks:
    """What one call has checked: prompts by the kinds around them, and chats by all their kinds."""

    prompts: dict[Kind, tuple[str, tuple[Control, ...]]] = field(default_factory=dict)
    chats: set[Kind] = field(default_factory=set)


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
        spans, strays = _marked(whole, conversation, trained), 0
    else:
        starts = [search.start(index) for index in trained]
        spans = {
            index: [(start, _end(whole, start, stops[index]))]
            for index, (start, _) in zip(trained, starts, strict=True)
        }
        strays = sum(is_stray for _, is_stray in starts)
    for index, parts in spans.items():
        if not any(start < stop for start, stop in parts):
            raise InputError(
                f"message {index + 1}: the template renders nothing for this answer",
                remedy="leave the message out, or give it weight 0",
            )
    return Masked(output=whole, spans=spans, strays=strays)


class _Search:
    """The begin and end of answers in one rendered chat."""

    def __init__(
        self, script: Script, conversation: Conversation, whole: Output, checks: Checks
    ) -> None:
        self._script = script
        self._conversation = conversation
        self._whole = whole
        self._checks = checks
        sought = script.program.sought
        kinds = tuple(_kind(message, sought) for message in conversation.messages)
        self._around = (
            id(script),
            bool(conversation.tools),
            bool(conversation.documents),
            repr(conversation.args) if conversation.args else "",
        )
        self._kinds = kinds

    def stops(self, trained: Sequence[int]) -> dict[int, int]:
        """Return where answers stop; InputError if one is another without what follows."""
        last = len(self._kinds) - 1
        chat = (*self._around, *self._kinds)
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

    def start(self, index: int) -> tuple[int, bool]:
        """Return where an answer begins, and whether its prompt goes on in another way."""
        whole, begins = self._whole, self._whole.starts.get(index)
        if index == 0:
            return begins or 0, False
        key = (*self._around, *self._kinds[index - 1 : index + 1])
        known = self._checks.prompts.get(key)
        if begins is None or known is None:
            prompt = self._script.render(
                self._conversation.first(index), add_generation_prompt=True
            )
            shared = prompt.shared_with(whole)
            if shared < (begins or 1):
                raise _broken(index, whole, prompt)
            if begins is not None:
                self._checks.prompts[key] = _behind(prompt, begins)
            return shared, shared < len(prompt.text)
        text, controls = known
        there = tuple((a - begins, b - begins, c) for a, b, c in whole.controls if a >= begins)
        head = Output(text=text, controls=controls, generation=(), starts={})
        rest = Output(
            text=whole.text[begins : begins + len(text) + 1],
            controls=there,
            generation=(),
            starts={},
        )
        shared = head.shared_with(rest)
        return begins + shared, shared < len(text)


def _behind(output: Output, place: int) -> tuple[str, tuple[Control, ...]]:
    controls = tuple((a - place, b - place, c) for a, b, c in output.controls if a >= place)
    return output.text[place:], controls


def _kind(message: Mapping[str, Any], sought: Sequence[str]) -> Kind:
    """Return what a template can tell of a message, short of its words."""
    content = message.get("content")
    if len(message) == 2 and type(content) is str:
        found = tuple([c for c in sought if c in content]) if sought else ()
        return message["role"], not content, content.isspace(), found
    fields = tuple((key, _shape(value)) for key, value in message.items() if key != "role")
    texts = [value for value in message.values() if isinstance(value, str)]
    found = tuple(c for c in sought if any(c in text for text in texts))
    return message.get("role"), fields, found


def _shape(value: Any) -> Any:
    if isinstance(value, str):
        return bool(value), not value.isspace()
    if isinstance(value, (list, tuple)):
        return tuple(_shape(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _shape(item)) for key, item in value.items())
    return value


def _end(whole: Output, start: int, stop: int) -> int:
    """Return the end of the control token that ends an answer, or `stop` if none does."""
    ends = [end for begin, end, _ in whole.controls if start <= begin and end <= stop]
    return ends[-1] if ends and not whole.text[ends[-1] : stop].strip() else stop


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
