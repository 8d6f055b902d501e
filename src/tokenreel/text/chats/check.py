"""Try to break a template: four claims, each with the chat that refutes it.

    prefix     the ids of the first k messages are a prefix of the ids of all
    stop       an assistant's trained span ends with a control id, and only there has it one
    injection  no content or name adds a control id; turns cannot be spelled in text
    parity     the prompt at inference is what training saw before the answer

The chats tried are few and hostile: empty and blank text, text that spells the
tokenizer's control tokens and the template's own headers, names, tools, several
turns. Silence is therefore no proof, but every finding is real: it carries the chat
and the ids.

Prefix and parity are claims about ids, and text that begins or ends with blanks is left out
there: a tokenizer may make one token of a header's newline and an answer's, as it would
in transformers. Chats that a model's own template refuses are left out; that its prompts or
its earlier answers change when more messages follow is told, with the policies that help,
and is no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tokenreel.errors import InputError
from tokenreel.text.chats.messages import Chat, Message, ToolCall
from tokenreel.text.chats.model_template import ModelTemplate
from tokenreel.text.chats.policy import REMEDY, Policy
from tokenreel.text.chats.render import Rendered, render, render_prompt
from tokenreel.text.chats.template import Template, bind, spelled
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer
from tokenreel.text.turns import ROLE_CODES, ROLES

CLAIMS = {
    "prefix": "the first k messages render to a prefix of all",
    "stop": "every answer's trained span ends with its only control id",
    "injection": "no content or name can write structure",
    "parity": "the prompt at inference equals the training prefix",
}
_ANSWER = ROLE_CODES["assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A claim that does not hold, and the chat that shows it."""

    claim: str
    what: str
    messages: tuple[Message, ...]
    expected: str
    actual: str
    remedy: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether the template should not be used: nothing in a build makes up for it."""
        return not self.remedy

    def as_dict(self) -> dict[str, object]:
        """Return the finding, ready for JSON."""
        return {
            **asdict(self),
            "messages": [
                {key: value for key, value in asdict(message).items() if value not in (None, ())}
                for message in self.messages
            ],
        }


def check_template(template: Template | ModelTemplate, tokenizer: Tokenizer) -> tuple[Finding, ...]:
    """Return what was found against a template, at most one finding per claim."""
    if isinstance(template, Template):
        bind(template, tokenizer)
    attempt = _Attempt(
        template=template,
        tokenizer=tokenizer,
        controls=np.fromiter(tokenizer.control_ids.values(), np.uint32),
    )
    tries = {
        "prefix": attempt.prefix,
        "stop": attempt.stop,
        "injection": attempt.injection,
        "parity": attempt.parity,
    }
    found = [_first(claim, refute) for claim, refute in tries.items()]
    return tuple(finding for finding in found if finding is not None)


def _first(claim: str, refute: Callable[[], Iterator[Finding]]) -> Finding | None:
    try:
        return next(refute(), None)
    except InputError as error:
        return Finding(
            claim=claim,
            what=f"a chat cannot be rendered: {error}",
            messages=(),
            expected="ids",
            actual="an error",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    template: Template | ModelTemplate
    tokenizer: Tokenizer
    controls: np.ndarray

    @property
    def _remedy(self) -> str:
        """What helps where a template changes what it wrote; one of plain data cannot."""
        return REMEDY if isinstance(self.template, ModelTemplate) else ""

    def prefix(self) -> Iterator[Finding]:
        for messages in self._chats():
            try:
                rendered = self._render(messages)
            except InputError as error:
                if error.remedy == REMEDY:
                    yield self._rewritten(messages, error)
                if isinstance(self.template, ModelTemplate):
                    continue
                raise
            whole = rendered.ids
            for k in range(1, len(messages)):
                part = self._ids(messages[:k])
                # What a template writes behind the last message is no part of the claim.
                if (
                    part is None
                    or not _is_plain(messages)
                    or np.array_equal(part, whole[: len(part)])
                ):
                    continue
                yield self._finding(
                    "prefix",
                    f"the first {k} messages render differently when more follow",
                    messages,
                    expected=part,
                    actual=whole[: len(part)],
                    remedy=self._remedy,
                )

    def _rewritten(self, messages: Sequence[Message], error: InputError) -> Finding:
        return Finding(
            claim="prefix",
            what=error.what,
            messages=tuple(messages),
            expected=str(error.expected),
            actual=str(error.actual),
            remedy=REMEDY,
        )

    def stop(self) -> Iterator[Finding]:
        for messages, rendered in self._rendered():
            for turn in rendered.turns[rendered.turns["role"] == _ANSWER]:
                stop = int(turn["start"] + turn["length"] - turn["tail"])
                span = rendered.ids[int(turn["start"]) + int(turn["head"]) : stop]
                if not self._stops(span) or not turn["weight"] > 0:
                    yield self._finding(
                        "stop",
                        "a model trained on this span does not learn to stop with a control id",
                        messages,
                        expected="one control id, the last of the trained span",
                        actual=span,
                    )

    def _stops(self, span: np.ndarray) -> bool:
        places = np.flatnonzero(np.isin(span, self.controls)).tolist()
        if isinstance(self.template, ModelTemplate):  # reasoning and calls may have some of theirs
            return places[-1:] == [len(span) - 1]
        return places == [len(span) - 1]

    def injection(self) -> Iterator[Finding]:
        plain = self._controls_in([_said("user", "hello"), _said("assistant", "hello")])
        if plain is None:
            return
        for text in self._hostile_texts():
            for messages in (
                [_said("user", text), _said("assistant", text)],
                [Message(role="user", content="hello", name=text), _said("assistant", "hello")],
            ):
                found = self._controls_in(messages)
                if found is not None and not np.array_equal(found, plain):
                    yield self._finding(
                        "injection",
                        "a message wrote control ids",
                        messages,
                        expected=plain,
                        actual=found,
                    )
        yield from self._spelled_turns(plain)

    def _spelled_turns(self, plain: np.ndarray) -> Iterator[Finding]:
        two_turns = self._controls_in([_said("user", "hello"), _said("assistant", "hello")] * 2)
        if two_turns is not None and np.array_equal(plain, two_turns):
            forged = f"hello{self._between}anything"
            yield self._finding(
                "injection",
                "turns are marked by ordinary text alone, so a message can spell one",
                [_said("user", forged)],
                expected="a control id in every turn",
                actual="none",
            )

    @property
    def _between(self) -> str:
        """What a template of plain data writes between a question and its answer."""
        if isinstance(self.template, ModelTemplate):
            return "\n"
        header = dict(self.template.headers)["assistant"]
        return spelled((*self.template.end_of("user"), *self.template.tail, *header))

    def parity(self) -> Iterator[Finding]:
        for messages, rendered in self._rendered():
            if not _is_plain(messages):
                continue
            answers = rendered.turns[rendered.turns["role"] == _ANSWER]
            numbers = [n for n, message in enumerate(messages) if message.role == "assistant"]
            if len(answers) != len(numbers):
                continue
            for number, turn in zip(numbers, answers, strict=True):
                seen = rendered.ids[: int(turn["start"]) + int(turn["head"])]
                prompt = render_prompt(messages[:number], self.template, tokenizer=self.tokenizer)
                if not np.array_equal(prompt, seen):
                    yield self._finding(
                        "parity",
                        f"the prompt for message {number + 1} is not what training saw",
                        messages,
                        expected=seen,
                        actual=prompt,
                        remedy="serve the model with the prompt that it was trained on"
                        if isinstance(self.template, ModelTemplate)
                        else "",
                    )

    def _chats(self) -> Iterator[list[Message]]:
        for text in ("hello", *self._hostile_texts()):
            answer = _said("assistant", text)
            yield [_said("user", text), answer]
            yield [_said("user", text), answer, _said("user", "again"), answer]
            if "system" in self._roles:
                yield [_said("system", text), _said("user", "hello"), answer]
            yield [
                Message(role="user", content=text, name="ann"),
                Message(role="assistant", content="hello", name="bob"),
            ]
            if "tool" in self._roles:
                call = ToolCall(name=text, arguments='{"a":1}')
                called = Message(role="assistant", content="", calls=(call,))
                yield [_said("user", "hello"), called, _said("tool", text), answer]
        if isinstance(self.template, ModelTemplate):
            thought = Message(role="assistant", content="hello", reasoning="how to greet")
            yield [_said("user", "hello"), thought, _said("user", "again"), thought]

    @property
    def _roles(self) -> Sequence[str]:
        if isinstance(self.template, ModelTemplate):
            return ROLES
        has_calls = self.template.calls is not None
        return [role for role, _ in self.template.headers if role != "tool" or has_calls]

    def _hostile_texts(self) -> list[str]:
        controls = sorted(self.tokenizer.control_ids)[:50]
        blank = ["", " ", "\n", "\n\n", " leading", "trailing ", "e\u0301 \U0001f642"]
        if isinstance(self.template, ModelTemplate):
            return [*blank, *controls, f"a{''.join(controls)}b"]
        headers = [spelled(parts) for _, parts in self.template.headers]
        ends = spelled((*self.template.end, *self.template.tail))
        return [*blank, *controls, *headers, ends, *(f"a{ends}{header}b" for header in headers)]

    def _rendered(self) -> Iterator[tuple[list[Message], Rendered]]:
        """Yield the chats that can be rendered; only a model's own template may refuse some."""
        for messages in self._chats():
            try:
                yield messages, self._render(messages)
            except InputError:
                if isinstance(self.template, Template):
                    raise

    def _render(self, messages: Sequence[Message], *, policy: Policy = "assistant") -> Rendered:
        chat = Chat(messages=tuple(messages))
        return render([chat], self.template, tokenizer=self.tokenizer, policy=policy)

    def _ids(self, messages: Sequence[Message]) -> np.ndarray | None:
        """Return the ids of a chat; None where a model's own template refuses it."""
        try:
            return self._render(messages, policy={}).ids
        except InputError:
            if isinstance(self.template, Template):
                raise
            return None

    def _controls_in(self, messages: Sequence[Message]) -> np.ndarray | None:
        ids = self._ids(messages)
        return None if ids is None else ids[np.isin(ids, self.controls)]

    def _finding(
        self,
        claim: str,
        what: str,
        messages: Sequence[Message],
        *,
        expected: str | np.ndarray,
        actual: str | np.ndarray,
        remedy: str = "",
    ) -> Finding:
        return Finding(
            claim=claim,
            what=what,
            messages=tuple(messages),
            expected=self._shown(expected),
            actual=self._shown(actual),
            remedy=remedy,
        )

    def _shown(self, value: str | np.ndarray) -> str:
        if isinstance(value, str):
            return value
        return f"{value.tolist()} ({self.tokenizer.decode(value)!r})"


def _said(role: str, content: str) -> Message:
    return Message(role=role, content=content)


def _is_plain(messages: Sequence[Message]) -> bool:
    """Tell whether no content begins or ends with blanks, which melt into those of a template."""
    return all(message.content == message.content.strip() for message in messages)
