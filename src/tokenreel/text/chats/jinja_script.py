"""A model's chat template at work for one tokenizer: a conversation in, text and controls out.

The promise: `Output.controls` are the control tokens that the template's own literals wrote, or
that they made together with a role; everything else is text, whatever it spells. Where the
output spells a control token beside these, the chat is rendered a second time with every
literal traced: what came with the chat alone is text; what literals and roles made is a control
token; what literal and content make together is refused, as is a chat whose second rendering
does not say the same, and a spelling that neither a literal nor the chat accounts for.

A template that does more to its control tokens than shadows can follow, and a chat that has
stand-ins, are rendered once more with nothing in the place of anything: where the text is
another, the chat is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any

import jinja2

from tokenreel.errors import ConfigError, InputError
from tokenreel.text.chats.jinja_budget import Unbounded
from tokenreel.text.chats.jinja_compile import (
    Program,
    Treatment,
    compile_template,
    constants,
    literals,
    parse_template,
    refuse_ours,
)
from tokenreel.text.chats.jinja_given import Conversation, all_text, collect, translated
from tokenreel.text.chats.jinja_globals import Refused
from tokenreel.text.chats.jinja_sandbox import Sandbox
from tokenreel.text.chats.jinja_shadows import (
    GENERATION_START,
    GENERATION_STOP,
    Control,
    Shadows,
    Unshadowed,
    Untracked,
    has_ours,
    is_traced,
    spans_of,
    stand_ins,
    traced,
    traced_pattern,
    without_marks,
)


@dataclass(slots=True)  # not frozen: many are made, and that takes a microsecond more
class Output:
    """A rendered conversation.

    controls: in order; generation: spans of {% generation %}; starts: where messages begin, as
    far as the template goes through them in a loop; prefixes: those n for which it tells the
    rendering of the first n messages.
    """

    text: str
    controls: Sequence[Control]
    generation: Sequence[tuple[int, int]] = ()
    starts: Mapping[int, int] = field(default_factory=dict)
    prefixes: frozenset[int] = frozenset()

    def agrees_with(self, other: Output, stop: int) -> bool:
        """Tell whether both outputs have the same text and control tokens up to a place."""
        if stop > min(len(self.text), len(other.text)):
            return False
        if not other.text.startswith(self.text[:stop]):
            return False
        return self.controls_before(stop) == other.controls_before(stop)

    def controls_before(self, stop: int) -> Sequence[Control]:
        """Return the control tokens that begin before a place."""
        return self.controls[: bisect_left(self.controls, (stop,))]

    def is_within_control(self, place: int) -> bool:
        """Tell whether a control token stands on both sides of a place."""
        number = bisect_left(self.controls, (place,))
        return number > 0 and self.controls[number - 1][1] > place

    def shared_with(self, other: Output) -> int:
        """Return how far both outputs have the same text and control tokens."""
        stop = min(len(self.text), len(other.text))
        if self.agrees_with(other, stop):
            return stop
        pairs = zip(self.text, other.text, strict=False)
        stop = next((n for n, (a, b) in enumerate(pairs) if a != b), stop)
        # A control token is shared as a whole, or not at all.
        apart = set(self.controls).symmetric_difference(other.controls)
        return min([stop, *(start for start, _, _ in apart)])


class Script:
    """A template's text, compiled for the control tokens of a tokenizer when it is first used."""

    def __init__(
        self,
        text: str,
        controls: Sequence[str],
        *,
        special_tokens: Mapping[str, str],
        args: Mapping[str, Any],
        today: date,
        where: str,
    ) -> None:
        self._text = text
        self._controls = tuple(controls)
        self._special_tokens = dict(special_tokens)
        self._args = dict(args)
        self._today = today
        self._where = where
        given: list[str] = [*special_tokens.values()]
        collect(self._args, given)
        self._given_text = "".join(given)
        self._tails: dict[bool, Output] = {}

    @cached_property
    def _shadows(self) -> Shadows:
        known = Shadows(self._controls)
        refuse_ours(self._given_text, where=self._where)
        tree = parse_template(self._text, Sandbox(known, today=self._today), where=self._where)
        written = [*literals(tree), *self._special_tokens.values()]
        unknown = dict.fromkeys(token for text in written for token in known.unknown_in(text))
        return Shadows(self._controls, tuple(unknown))

    @cached_property
    def _own_characters(self) -> str:
        sandbox = Sandbox(self._shadows, today=self._today)
        tree = parse_template(self._text, sandbox, where=self._where)
        return "".join([self._text, *constants(tree), self._given_text])

    @cached_property
    def program(self) -> Program:
        """The template with its control tokens in shadow."""
        shadow = self._shadows.shadow
        return self._compiled(self._shadows, Treatment(shadow, shadow))

    @cached_property
    def _traced_program(self) -> Program:
        return self._compiled(self._shadows, Treatment(traced, traced_pattern))

    @cached_property
    def _plain_program(self) -> Program:
        return self._compiled(Unshadowed(()), Treatment(_unmarked, _unmarked))

    def _compiled(self, shadows: Shadows, treatment: Treatment) -> Program:
        special = {name: treatment.literal(token) for name, token in self._special_tokens.items()}
        return compile_template(
            self._text,
            shadows,
            today=self._today,
            treatment=treatment,
            given=special | self._args,
            where=self._where,
        )

    def render(self, conversation: Conversation, *, add_generation_prompt: bool = False) -> Output:
        """Render a conversation; InputError says why a chat is refused."""
        return _guarded(self._rendered, conversation, add_generation_prompt)

    def first(
        self,
        num_messages: int,
        conversation: Conversation,
        whole: Output,
        *,
        add_generation_prompt: bool = False,
    ) -> Output:
        """Return text and control tokens of the first messages; those of all are given.

        They are read off the whole output if that tells them (jinja_prefixes.py).
        """
        if self._tells(num_messages, conversation, whole, add_generation_prompt):
            tail = _guarded(self._tail, add_generation_prompt)
            place = whole.starts[num_messages]
            text, controls = whole.text[:place], whole.controls_before(place)
            if not whole.is_within_control(place) and not self._has_seam(text, controls, tail):
                behind = [(place + start, place + stop, t) for start, stop, t in tail.controls]
                return Output(text + tail.text, [*controls, *behind])
        first = conversation.first(num_messages)
        return self.render(first, add_generation_prompt=add_generation_prompt)

    def ends(self, conversation: Conversation, whole: Output) -> frozenset[int]:
        """Return those n for which the first n messages are what the whole begins with."""
        told = whole.prefixes
        if not told or not self._tells(min(told), conversation, whole, False):
            return frozenset()
        if _guarded(self._tail, False).text:
            return frozenset()
        return frozenset(n for n in told if not whole.is_within_control(whole.starts[n]))

    def _tells(
        self, num_messages: int, conversation: Conversation, whole: Output, prompt: bool
    ) -> bool:
        """Tell whether an output and the tail of all chats are that of the first messages."""
        tail = self.program.tail
        return (
            num_messages in whole.prefixes
            and tail is not None
            and (tail.has_all_prompts or not prompt)
            and tail.names.isdisjoint(conversation.args)
        )

    def _tail(self, prompt: bool) -> Output:
        """Return what the template writes behind the messages of any chat."""
        known = self._tails.get(prompt)
        if known is None:
            variables = _variables(self.program, Conversation(messages=[]), prompt)
            pieces = self.program.tail_pieces
            written = "".join(pieces(variables)) if pieces else ""
            text, controls, _ = self._shadows.read(written)
            self._refuse_unknown(controls)
            known = self._tails[prompt] = Output(text, controls)
        return known

    def _has_seam(self, text: str, controls: Sequence[Control], tail: Output) -> bool:
        """Tell whether a text and the tail behind it spell a control token that neither wrote."""
        if not tail.text:
            return False
        start = max(controls[-1][1] if controls else 0, len(text) - self._shadows.longest)
        return self._shadows.may_spell_more(text[start:] + tail.text, len(tail.controls))

    def _rendered(self, conversation: Conversation, prompt: bool) -> Output:
        sample = all_text(conversation)
        table, given = None, conversation
        if has_ours(sample):
            table = stand_ins(sample, taken=self._own_characters)
            given, sample = translated(conversation, table), sample.translate(table)
        output = self._output(given, prompt, sample)
        if table:
            back = {ord(stand_in): chr(code) for code, stand_in in table.items()}
            output.text = output.text.translate(back)
        if table or self.program.environment.touched:
            output.prefixes = frozenset()
            self._check(output, conversation, prompt, len(sample))
        return output

    def _check(
        self, output: Output, conversation: Conversation, prompt: bool, num_characters: int
    ) -> None:
        """Refuse an output that is another text when nothing is put in the place of anything."""
        program = self._plain_program
        plain = self._run(program, conversation, prompt, num_characters)
        if plain != output.text:
            raise Untracked("the template rewrites its control tokens, or private-use characters")

    def _output(self, conversation: Conversation, prompt: bool, sample: str) -> Output:
        """Return the output; `sample` is every string of the conversation."""
        program, shadows = self.program, self._shadows
        written = self._run(program, conversation, prompt, len(sample))
        text, controls, marks = shadows.read(written)
        self._refuse_unknown(controls)
        watch = program.environment.watch
        starts, prefixes = watch.starts(), watch.prefixes()
        generation: Sequence[tuple[int, int]] = ()
        if marks:  # which were counted with the text
            generation = spans_of(marks)
            places = [place + number for number, (place, _) in enumerate(marks)]
            starts = {index: place - bisect_left(places, place) for index, place in starts.items()}
            if program.nested_generation:  # nobody knows that spans end with their messages
                prefixes = frozenset()
        if shadows.may_spell_more(text, len(controls)):
            prefixes = frozenset()
            found = [(m.start(), m.end(), m[0]) for m in shadows.spelling.finditer(text)]
            if found != controls:
                origin = self._origin(text, conversation, prompt)
                controls = _resolved(text, found, controls, origin, sample + self._given_text)
        return Output(text, controls, generation, starts, prefixes)

    def _run(
        self, program: Program, conversation: Conversation, prompt: bool, num_characters: int
    ) -> str:
        variables = _variables(program, conversation, prompt)
        return program.run(variables, num_characters=num_characters)

    def _refuse_unknown(self, controls: Sequence[Control]) -> None:
        if not self._shadows.unknown:
            return
        for _, _, token in controls:
            if token in self._shadows.unknown:
                if self.program.environment.touched:
                    raise Untracked(f"the template rewrites {token!r}, a literal of its own")
                raise ConfigError(
                    f"the template writes {token!r}, which is no control token of the tokenizer",
                    where=self._where,
                    remedy="use the tokenizer that the template was made for",
                )

    def _origin(self, text: str, conversation: Conversation, prompt: bool) -> str:
        """Return the output with literals and roles traced, or with literals alone."""
        roles = [
            {**message, "role": traced(str(message.get("role", "")))}
            for message in conversation.messages
        ]
        for messages in (roles, conversation.messages):
            given = replace(conversation, messages=messages)
            try:
                written = self._run(self._traced_program, given, prompt, len(text))
                origin = without_marks(written)
                if self._shadows.spelled(origin) == text:
                    return origin
            except (jinja2.TemplateError, Untracked, Unbounded, *_FAILURES):
                pass
        raise InputError(
            "the chat spells control tokens, and the template treats its literals in a way "
            "that cannot be followed to tell them apart",
            remedy="leave out the spelled control tokens, or the chat",
        )


def _variables(program: Program, conversation: Conversation, prompt: bool) -> dict[str, Any]:
    return {
        **program.given,
        **conversation.args,
        "messages": conversation.messages,
        "tools": conversation.tools,
        "documents": conversation.documents,
        "add_generation_prompt": prompt,
    }


# What a template raises by adding None to a text, calling what is not there, and the like.
_FAILURES = (
    *(TypeError, ValueError, LookupError, AttributeError, ArithmeticError),
    *(RecursionError, MemoryError),
)


def _guarded(render: Callable[..., Output], *args: Any) -> Output:
    """Return what `render` returns; what a template does wrong becomes an InputError."""
    try:
        return render(*args)
    except Refused as error:
        raise InputError(f"the template refuses the chat: {error}") from None
    except jinja2.exceptions.SecurityError as error:
        raise InputError(f"the template does what a sandbox forbids: {error}") from None
    except Unbounded as error:
        raise InputError(f"the template is given up: {error}") from None
    except Untracked as error:
        raise InputError(f"the chat cannot be followed through the template: {error}") from None
    except (ConfigError, InputError):
        raise
    except (jinja2.TemplateError, *_FAILURES) as error:
        said = str(error) or type(error).__name__
        raise InputError(f"the template fails on the chat: {said[:300]}") from None


def _resolved(
    text: str, found: list[Control], controls: list[Control], origin: str, said: str
) -> list[Control]:
    """Return the control tokens of an output that spells others than its literals wrote.

    origin: the output with what literals wrote traced; said: every string of the chat.
    """
    _refuse_overlaps(text, found, controls)
    genuine = set(controls)
    for span in found:
        if span in genuine:
            continue
        by_literal = {is_traced(character) for character in origin[span[0] : span[1]]}
        if by_literal == {True}:
            genuine.add(span)
        elif by_literal != {False}:
            raise _seam(text, span)
        elif span[2] not in said:
            raise Untracked(f"{span[2]!r} in its output is of no literal and of no message")
    return sorted(genuine)


def _refuse_overlaps(text: str, found: list[Control], controls: list[Control]) -> None:
    """Refuse a literal's control token that becomes another by what stands beside it."""
    missing = set(controls).difference(found)
    if missing:
        raise _seam(text, min(missing))


def _unmarked(literal: str) -> str:
    return "" if literal in (GENERATION_START, GENERATION_STOP) else literal


def _seam(text: str, span: Control) -> InputError:
    around = text[max(0, span[0] - 20) : span[1] + 20]
    return InputError(
        f"content and template together spell the control token {span[2]!r}",
        actual=repr(around),
        remedy="leave the chat out, or change the text at this place",
    )
