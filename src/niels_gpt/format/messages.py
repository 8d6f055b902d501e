"""The messages of a chat as contract 001 serializes them: "SYS once, then alternating turns".

Done to the messages alone, before the chat is read; what is no list of messages is passed
on as it is, and the reader says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.sources.oasst import ROLES

SYSTEM_SEPARATOR = "\n\n"


def normalize_messages(messages: object) -> object:
    """Return the messages with lower-case roles and at most one system message, the first.

    `prompter` is the user. A system message behind other messages moves to the front;
    of several, the contents are joined by an empty line, in their order.

    >>> late = [{"role": "PROMPTER", "content": "Hi"}, {"role": "system", "content": "Be brief"}]
    >>> [message["role"] for message in normalize_messages(late)]
    ['system', 'user']
    """
    if not isinstance(messages, (list, tuple)) or not all(
        isinstance(message, Mapping) for message in messages
    ):
        return messages
    turns = [_with_known_role(message) for message in messages]
    systems = [turn for turn in turns if turn.get("role") == "system"]
    if not systems or (len(systems) == 1 and turns[0] is systems[0]):
        return turns
    others = [turn for turn in turns if turn.get("role") != "system"]
    return [systems[0] if len(systems) == 1 else _joined(systems), *others]


def _with_known_role(message: Mapping[str, Any]) -> Mapping[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        return message
    lower = role.lower()
    known = ROLES.get(lower, lower)
    return message if known == role else {**message, "role": known}


def _joined(systems: list[Mapping[str, Any]]) -> dict[str, str]:
    contents = [system.get("content") for system in systems]
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) < len(contents):
        raise InputError(
            "a system message without text, among several",
            expected="a string as the content of each",
            actual=", ".join(type(content).__name__ for content in contents),
        )
    return {"role": "system", "content": SYSTEM_SEPARATOR.join(texts)}
