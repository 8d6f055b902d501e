"""What a template is given of a chat: plain data, as JSON has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.chats.jinja_shadows import SURROGATES

_NUMBER = "0" * 24  # what a number counts as, where a chat is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a template is given: plain data, as JSON has it."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Any] | None = None
    documents: Sequence[Any] | None = None
    args: Mapping[str, Any] = field(default_factory=dict)

    def first(self, num_messages: int) -> Conversation:
        """Return the conversation up to a message."""
        return replace(self, messages=self.messages[:num_messages])


def all_text(conversation: Conversation) -> str:
    """Return every string of a conversation, one after the other; refuse what is no text."""
    found: list[str] = []
    collect(conversation.messages, found)
    for more in (conversation.tools, conversation.documents, conversation.args):
        if more:
            collect(more, found)
    text = "".join(found)
    if not text.isascii() and (surrogate := SURROGATES.search(text)):
        raise InputError(
            "a chat has a lone surrogate in it",
            expected="text that UTF-8 can hold",
            actual=f"U+{ord(surrogate[0]):04X}",
        )
    return text


def collect(value: Any, found: list[str]) -> None:
    kind = type(value)
    if kind is str:
        found.append(value)
    elif kind is dict:
        for key, item in value.items():
            found.append(key)
            if type(item) is str:
                found.append(item)
            elif item is not None:
                collect(item, found)
    elif kind in (list, tuple):
        for item in value:
            collect(item, found)
    elif kind in (int, float):
        found.append(_NUMBER)
    elif value is not None and kind is not bool:
        raise InputError(
            "a chat has something in it that JSON does not",
            expected="text, numbers, lists and objects",
            actual=kind.__name__,
        )


def translated(value: Any, table: Mapping[int, str]) -> Any:
    if isinstance(value, Conversation):
        return Conversation(
            messages=translated(value.messages, table),
            tools=translated(value.tools, table),
            documents=translated(value.documents, table),
            args=translated(value.args, table),
        )
    if isinstance(value, str):
        return value.translate(table)
    if isinstance(value, Mapping):
        return {translated(k, table): translated(v, table) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [translated(item, table) for item in value]
    return value
