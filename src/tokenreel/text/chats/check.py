"""Try to break a template: four claims, each with the chat that refutes it.

    prefix     the ids of the first k messages are a prefix of the ids of all
    stop       an assistant's trained span ends with a control id, and only there has it one
    injection  no content or name adds a control id; turns cannot be spelled in text
    parity     the prompt at inference is what training saw before the answer

The chats tried are few and hostile: empty and blank text, text that spells the
tokenizer's control tokens and the template's own headers, names, tools, several
turns. Silence is therefore no proof, but every finding is real: it carries the chat
and the ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tokenreel.text.chats.messages import Chat, Message, ToolCall
from tokenreel.text.chats.render import Rendered, render, render_prompt
from tokenreel.text.chats.template import Template, bind, spelled
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer
from tokenreel.text.turns import ROLE_CODES

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

    def as_dict(self) -> dict[str, object]:
        """Return the finding, ready for JSON."""
        return {
            **asdict(self),
            "messages": [
                {key: value for key, value in asdict(message).items() if value not in (None, ())}
                for message in self.messages
            ],
        }


def check_template(template: Template, tokenizer: Tokenizer) -> tuple[Finding, ...]:
    """Return what was found against a template, at most one finding per claim."""
    bind(template, tokenizer)
    attempt = _Attempt(
        template=template,
        tokenizer=tokenizer,
        controls=np.fromiter(tokenizer.control_ids.values(), np.uint32),
    )
    tries = (attempt.prefix, attempt.stop, attempt.injection, attempt.parity)
    found = [next(refute(), None) for refute in tries]
    return tuple(finding for finding in found if finding is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    template: Template
    tokenizer: Tokenizer
    controls: np.ndarray

    @property
    def _roles(self) -> list[str]:
        return [role for role, _ in self.template.headers]

    def prefix(self) -> Iterator[Finding]:
        for messages in self._chats():
            whole = self._render(messages).ids
            for k in range(1, len(messages)):
                part = self._render(messages[:k]).ids
                if not np.array_equal(part, whole[: len(part)]):
                    yield self._finding(
                        "prefix",
                        f"the first {k} messages render differently when more follow",
                        messages,
                        expected=part,
                        actual=whole[: len(part)],
                    )

    def stop(self) -> Iterator[Finding]:
        for messages in self._chats():
            rendered = self._render(messages)
            for turn in rendered.turns[rendered.turns["role"] == _ANSWER]:
                stop = int(turn["start"] + turn["length"] - turn["tail"])
                span = rendered.ids[int(turn["start"]) + int(turn["head"]) : stop]
                places = np.flatnonzero(np.isin(span, self.controls))
                if places.tolist() != [len(span) - 1] or not turn["weight"] > 0:
                    yield self._finding(
                        "stop",
                        "a model trained on this span does not learn to stop with a control id",
                        messages,
                        expected="one control id, the last of the trained span",
                        actual=span,
                    )

    def injection(self) -> Iterator[Finding]:
        plain = self._controls_in([_said("user", "hello"), _said("assistant", "hello")])
        for text in self._hostile_texts():
            for messages in (
                [_said("user", text), _said("assistant", text)],
                [Message(role="user", content="hello", name=text), _said("assistant", "hello")],
            ):
                found = self._controls_in(messages)
                if not np.array_equal(found, plain):
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
        if np.array_equal(plain, two_turns):
            header = dict(self.template.headers)["assistant"]
            between = (*self.template.end_of("user"), *self.template.tail, *header)
            forged = f"hello{spelled(between)}anything"
            yield self._finding(
                "injection",
                "turns are marked by ordinary text alone, so a message can spell one",
                [_said("user", forged)],
                expected="a control id in every turn",
                actual="none",
            )

    def parity(self) -> Iterator[Finding]:
        for messages in self._chats():
            rendered = self._render(messages)
            injected = len(rendered.turns) - len(messages)
            for number, message in enumerate(messages):
                if message.role != "assistant":
                    continue
                turn = rendered.turns[number + injected]
                seen = rendered.ids[: int(turn["start"]) + int(turn["head"])]
                prompt = render_prompt(messages[:number], self.template, tokenizer=self.tokenizer)
                if not np.array_equal(prompt, seen):
                    yield self._finding(
                        "parity",
                        f"the prompt for message {number + 1} is not what training saw",
                        messages,
                        expected=seen,
                        actual=prompt,
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
            if "tool" in self._roles and self.template.calls:
                call = ToolCall(name=text, arguments='{"a":1}')
                called = Message(role="assistant", content="", calls=(call,))
                yield [_said("user", "hello"), called, _said("tool", text), answer]

    def _hostile_texts(self) -> list[str]:
        controls = sorted(self.tokenizer.control_ids)[:50]
        headers = [spelled(parts) for _, parts in self.template.headers]
        ends = spelled((*self.template.end, *self.template.tail))
        blank = ["", " ", "\n", "\n\n", " leading", "trailing ", "e\u0301 \U0001f642"]
        return [*blank, *controls, *headers, ends, *(f"a{ends}{header}b" for header in headers)]

    def _render(self, messages: Sequence[Message]) -> Rendered:
        chat = Chat(messages=tuple(messages))
        return render([chat], self.template, tokenizer=self.tokenizer)

    def _controls_in(self, messages: Sequence[Message]) -> np.ndarray:
        ids = self._render(messages).ids
        return ids[np.isin(ids, self.controls)]

    def _finding(
        self,
        claim: str,
        what: str,
        messages: Sequence[Message],
        *,
        expected: str | np.ndarray,
        actual: str | np.ndarray,
    ) -> Finding:
        return Finding(
            claim=claim,
            what=what,
            messages=tuple(messages),
            expected=self._shown(expected),
            actual=self._shown(actual),
        )

    def _shown(self, value: str | np.ndarray) -> str:
        if isinstance(value, str):
            return value
        return f"{value.tolist()} ({self.tokenizer.decode(value)!r})"


def _said(role: str, content: str) -> Message:
    return Message(role=role, content=content)
