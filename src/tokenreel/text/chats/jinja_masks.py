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

The header of an answer is never trained. Where the prompt does not tell where the answer begins,
the answer begins where its content does: the chat is rendered with a mark in its place. So it is
- where a template has no generation prompt, and writes the header with the answer;
- where the chat begins with an answer, and the template renders no prompt for no messages;
- where the prompt goes on in another way than the chat does. Templates of reasoning models open
  with `<think>` for the model, and render an answer without reasoning without it. Such answers
  are counted (`strays`): served with that prompt, the model will not be where it was trained.
A chat whose template does not tell is refused; the remedy is to mark the answers.

Every answer is checked by its prompt and by its end (the last answer ends with the chat): nothing
is concluded from answers that look alike, since a template may look at every word. Both are read
off the rendering of the chat where that tells what the template writes for the first messages
(jinja_prefixes.py), and rendered where it does not: a chat of n answers then costs 2n renderings,
of half of it each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.chats.jinja_given import Conversation
from tokenreel.text.chats.jinja_script import Output, Script
from tokenreel.text.chats.shapes import REASONING_KEYS

Span = tuple[int, int]
MARK_ANSWERS = (
    "mark the answers in the template with {% generation %} and {% endgeneration %}, or give the "
    "message weight 0"
)
_SAID = ("content", *REASONING_KEYS)
_PRIVATE_USE = range(0xE000, 0xF900)


@dataclass(slots=True)
class Masked:
    """A rendered chat, and the spans of characters that each trained message is trained on.

    strays: how many of these do not begin with the prompt that the template makes for them.
    """

    output: Output
    spans: Mapping[int, Sequence[Span]]
    strays: int = 0


def mask(
    script: Script, conversation: Conversation, trained: Sequence[int], *, remedy: str
) -> Masked:
    """Render a chat and find the spans of its trained messages, which are answers.

    remedy: what to do where the template writes an answer in another way once more follows.
    """
    whole = script.render(conversation)
    if not trained:
        return Masked(whole, {})
    search = _Search(script, conversation, whole, remedy)
    stops = {index: search.stop(index) for index in trained}
    spans: Mapping[int, Sequence[Span]]
    if script.program.has_generation:
        spans, strays = _marked(whole, conversation, trained), 0
    else:
        begins = {index: search.begin(index, stops[index]) for index in trained}
        spans = {
            index: [(begin, search.end(index, begin, stops[index]))]
            for index, (begin, _) in begins.items()
        }
        strays = sum(is_stray for _, is_stray in begins.values())
    for index, parts in spans.items():
        if not parts or parts[0][0] >= parts[0][1]:
            raise InputError(
                f"message {index + 1}: the template renders nothing for this answer",
                remedy="leave the message out, or give it weight 0",
            )
    return Masked(whole, spans, strays)


class _Search:
    """The begin and end of answers in one rendered chat."""

    def __init__(
        self, script: Script, conversation: Conversation, whole: Output, remedy: str
    ) -> None:
        self._script = script
        self._conversation = conversation
        self._whole = whole
        self._remedy = remedy
        self._ends = script.ends(conversation, whole) if len(whole.starts) > 2 else ()

    def stop(self, index: int) -> int:
        """Return where an answer stops; InputError if it is another without what follows."""
        if index == len(self._conversation.messages) - 1:
            return len(self._whole.text)
        if index + 1 in self._ends and self._whole.starts[index + 1]:
            return self._whole.starts[index + 1]
        ended = self._script.first(index + 1, self._conversation, self._whole)
        places = {len(ended.text), self._whole.starts.get(index + 1, 0)}
        # The longer one first: the token that ends an answer may be written with the next
        # message. The shorter one holds where something is written behind the last message.
        for stop in sorted(places, reverse=True):
            if stop and ended.agrees_with(self._whole, stop):
                return stop
        raise self._broken(index, ended)

    def begin(self, index: int, stop: int) -> tuple[int, bool]:
        """Return where an answer begins, and whether its prompt goes on in another way."""
        whole, taken_up = self._whole, self._whole.starts.get(index)
        prompt = self._prompt(index)
        if prompt is None:
            return self._content(index), False
        shared = prompt.shared_with(whole)
        is_led = shared == len(prompt.text)
        if is_led and (shared >= stop or (taken_up is not None and taken_up < shared)):
            return shared, False
        if index > 0 and shared < (taken_up or 0):
            raise self._broken(index, prompt)
        if is_led and not self._has_header(index, shared):
            return shared, False
        content = self._content(index)
        if not is_led and index > 0 and taken_up is None and shared < content:
            raise self._broken(index, prompt)
        return content, not is_led

    def _prompt(self, index: int) -> Output | None:
        """Return the prompt of an answer; None if the template renders none for no messages."""
        try:
            return self._script.first(
                index, self._conversation, self._whole, add_generation_prompt=True
            )
        except InputError:
            if index > 0:
                raise
            return None

    def _has_header(self, index: int, prompt_stop: int) -> bool:
        """Tell whether the template writes more than blanks between prompt and answer.

        Blanks before the content are no header: served, the model has to write them. Nor is what
        opens a tool call, which an answer without calls does not have.
        """
        probe = self._probe(index, self._plain(index))
        if probe is None:
            return True
        place = probe.text.find(self._mark, prompt_stop)
        return (
            place < 0
            or bool(probe.text[prompt_stop:place].strip())
            or any(prompt_stop <= start < place for start, _, _ in probe.controls)
        )

    def _content(self, index: int) -> int:
        """Return where the first text of an answer stands, by a rendering with a mark there."""
        whole, taken_up = self._whole, self._whole.starts.get(index)
        message = self._conversation.messages[index]
        for other in (self._plain(index), _with_mark(message, self._mark)):
            probe = self._probe(index, other)
            place = -1 if probe is None else probe.text.find(self._mark, taken_up or 0)
            if probe is None or place < 0 or not probe.agrees_with(whole, place):
                continue
            # Without a loop over messages, a template that writes an answer twice tells nothing.
            if taken_up is not None or probe.text.count(self._mark) == 1:
                return place
        raise InputError(
            f"message {index + 1}: the template does not tell where this answer begins",
            remedy=MARK_ANSWERS,
        )

    @cached_property
    def _mark(self) -> str:
        return next(chr(code) for code in _PRIVATE_USE if chr(code) not in self._whole.text)

    def _plain(self, index: int) -> Mapping[str, Any]:
        return {"role": self._conversation.messages[index].get("role"), "content": self._mark}

    def _probe(self, index: int, message: Mapping[str, Any]) -> Output | None:
        """Return the chat with another message in a place; None if the template refuses it."""
        messages = list(self._conversation.messages)
        messages[index] = message
        try:
            return self._script.render(replace(self._conversation, messages=messages))
        except InputError:
            return None

    def end(self, index: int, begin: int, stop: int) -> int:
        """Return the end of the control token that ends an answer, or `stop` if none does."""
        whole = self._whole
        header = self._span(self._whole.starts.get(index, begin), begin)
        # A template may write a prompt behind every chat, asked for or not.
        prompt = stop - len(header[0])
        if header[0].strip() and prompt > begin and self._span(prompt, stop) == header:
            stop = prompt
        ends = [end for start, end, _ in whole.controls if begin <= start and end <= stop]
        return ends[-1] if ends and not whole.text[ends[-1] : stop].strip() else stop

    def _span(self, start: int, stop: int) -> tuple[str, list[Span]]:
        """Return a stretch of the output, and the control tokens in it by their places there."""
        controls = [(a - start, b - start) for a, b, _ in self._whole.controls if start <= a < stop]
        return self._whole.text[start:stop], controls

    def _broken(self, index: int, alone: Output) -> InputError:
        place = alone.shared_with(self._whole)
        return InputError(
            f"message {index + 1}: the template renders this answer, or what leads to it, in "
            "another way when more messages follow",
            expected=_excerpt(alone.text, place),
            actual=_excerpt(self._whole.text, place),
            remedy=self._remedy,
        )


def _with_mark(message: Mapping[str, Any], mark: str) -> Mapping[str, Any]:
    """Return a message with a mark before each text that it says, and before names of calls."""

    def marked(value: Any, keys: Sequence[str]) -> Any:
        if isinstance(value, str):
            return mark + value
        if isinstance(value, Mapping):
            return {k: marked(v, keys) if k in keys else v for k, v in value.items()}
        return [marked(item, keys) for item in value] if isinstance(value, (list, tuple)) else value

    said = {k: marked(v, ("text",)) for k, v in message.items() if k in _SAID}
    calls = {k: marked(v, ("function", "name")) for k, v in message.items() if k == "tool_calls"}
    return {**message, **said, **calls}


def _marked(
    whole: Output, conversation: Conversation, trained: Sequence[int]
) -> dict[int, Sequence[Span]]:
    """Return the spans of {% generation %}, each given to the message in whose place it is."""
    answers = [n for n, message in enumerate(conversation.messages) if _is_answer(message)]
    is_told = whole.starts.keys() >= set(answers)
    spans: dict[int, list[Span]] = {index: [] for index in trained}
    if not is_told and len(answers) > 1 and len(whole.generation) != len(answers):
        raise InputError("the marks of {% generation %} cannot be told apart by messages")
    begun, begins = list(whole.starts), list(whole.starts.values())
    for number, span in enumerate(whole.generation):
        if is_told:
            place = bisect_right(begins, span[0])
            owner = begun[place - 1] if place else None
        else:
            owner = answers[min(number, len(answers) - 1)]
        if owner in spans and span[0] < span[1]:
            spans[owner].append(span)
    return {**spans}


def _is_answer(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant"


def _excerpt(text: str, place: int) -> str:
    return repr(text[max(0, place - 20) : place + 30])
