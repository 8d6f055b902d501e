"""A chat as tokenreel sees it: messages with a role, text, tool calls and a weight.

The promise: everything here is plain frozen data. Tool-call arguments and tool
schemas are kept in one canonical JSON form (sorted keys, no spaces, no escapes
for letters), so that the same arguments written as a string or as an object
render alike; a key that is missing stays missing, and no null is ever added.
Costs about a microsecond per message. Reading other people's records is the
work of `shapes`; turning messages into ids that of `render`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenreel.canonical import canonical_json
from tokenreel.errors import InputError
from tokenreel.text.provenance import Provenance

UNRENDERED_REASONING = "reasoning of messages (reasoning_content, thinking), not rendered"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool; `arguments` is canonical JSON, None where the call gave none."""

    name: str
    arguments: str | None = None

    def as_json(self) -> str:
        """Return the call as one canonical JSON object.

        >>> ToolCall(name="add", arguments='{"a":1}').as_json()
        '{"arguments":{"a":1},"name":"add"}'
        """
        name = json.dumps(self.name, ensure_ascii=False)
        arguments = "" if self.arguments is None else f'"arguments":{self.arguments},'
        return f'{{{arguments}"name":{name}}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; a `weight` of None leaves the loss weight to the policy.

    `reasoning` is what the message says of how its content was found; templates of TOML do not
    render it, and a build counts the chats that have some (UNRENDERED_REASONING). `given` is the
    message as its record has it, for a model's own template, which may look at any of it.
    """

    role: str
    content: str
    name: str | None = None
    calls: tuple[ToolCall, ...] = ()
    weight: float | None = None
    reasoning: str | None = None
    given: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """Messages in order, the schemas of the tools at hand (canonical JSON), and the origin.

    `given` is what else the record has for a model's own template: `tools` as they are written,
    `documents`, and `chat_template_kwargs`.
    """

    messages: tuple[Message, ...]
    tools: tuple[str, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    given: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def unrendered(self) -> tuple[str, ...]:
        """What the chat has that no template renders, for the account of a build."""
        has_reasoning = any(message.reasoning for message in self.messages)
        return (UNRENDERED_REASONING,) if has_reasoning else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a record a value stands, for the errors about it."""

    provenance: Provenance
    message: int | None = None
    field: str = ""

    def at(self, field_name: str) -> Place:
        """Return the place of a field inside this one."""
        dot = "." if self.field and not field_name.startswith("[") else ""
        path = f"{self.field}{dot}{field_name}"
        return Place(provenance=self.provenance, message=self.message, field=path)

    def error(
        self,
        what: str,
        *,
        expected: str | None = None,
        actual: object = None,
        remedy: str | None = None,
    ) -> InputError:
        """Return an InputError that names file, line, message number (from 1) and field."""
        parts = [] if self.message is None else [f"message {self.message}"]
        parts += [f"field {self.field!r}"] if self.field else []
        about = ", ".join(parts)
        return InputError(
            f"{about}: {what}" if about else what,
            where=str(self.provenance),
            expected=expected,
            actual=actual,
            remedy=remedy,
        )

    def text(self, value: object) -> str:
        """Return `value` if it is a string that UTF-8 can hold, else raise InputError."""
        if not isinstance(value, str):
            raise self.error("not a string", expected="a string", actual=type_name(value))
        if not value.isascii():
            self._reject_surrogates(value)
        return value

    def json(self, value: object) -> str:
        """Return the canonical JSON of a value, or of the JSON text it is."""
        if isinstance(value, str):
            value = self.parsed(value)
        try:
            written = canonical_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise self.error(f"cannot be written as JSON: {error}") from error
        return self.text(written)

    def parsed(self, text: str) -> object:
        """Return what a JSON text says; a repeated key, NaN and Infinity are errors."""
        try:
            return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise self.error(
                f"not valid JSON: {error}",
                actual=shorten(text),
                remedy="give the arguments as an object or as the JSON text of one",
            ) from error

    def _reject_surrogates(self, value: str) -> None:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.error(
                f"a lone surrogate at character {error.start}",
                expected="text that UTF-8 can hold",
                actual=f"U+{ord(value[error.start]):04X}",
            ) from error


def type_name(value: object) -> str:
    """Return how JSON calls the type of a value.

    >>> type_name(None), type_name({}), type_name(True)
    ('null', 'an object', 'a boolean')
    """
    names = {
        bool: "a boolean",
        str: "a string",
        int: "a number",
        float: "a number",
        list: "a list",
        tuple: "a list",
        dict: "an object",
        type(None): "null",
    }
    return names.get(type(value), type(value).__name__)


def shorten(text: str, limit: int = 60) -> str:
    """Return the text's repr, cut to about `limit` characters."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}…"


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("an object has the same key twice")
    return unique


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
