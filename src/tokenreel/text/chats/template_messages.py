"""Messages as a template of plain data takes them: with tools, calls, lead and default system text.

What a template has no place for (a role, tool calls, tool schemas) is an InputError that says
where in which record it stands. Names are kept where the header of their role has a place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np

from tokenreel.text.chats.messages import Chat, Message, Place
from tokenreel.text.chats.template import Name, Template
from tokenreel.text.chats.template_text import Said


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The messages of many chats, end to end; chat i is those from turn_offsets[i] on.

    contents: with lead and calls; names: by the number of the message.
    """

    chats: Sequence[Chat]
    turn_offsets: np.ndarray
    messages: Sequence[Message]
    roles: Sequence[str]
    contents: Sequence[str]
    names: dict[int, str]

    def by_chat(self) -> Iterator[list[Said]]:
        """Yield the messages of each chat."""
        for start, stop in pairwise(self.turn_offsets.tolist()):
            yield [
                Said(role=self.roles[i], content=self.contents[i], name=self.names.get(i))
                for i in range(start, stop)
            ]

    def place_of(self, index: int) -> Place:
        """Return where the n-th message of all stands in its record; needed for errors only."""
        return _place_of(self.chats, self.turn_offsets, index)


def read_given(chats: Sequence[Chat], template: Template) -> Given:
    """Return the messages of chats as a template takes them."""
    spoken = _all_messages(chats, template)
    turn_offsets = np.cumsum([0, *map(len, spoken)], dtype=np.int64)
    messages = list(chain.from_iterable(spoken))
    roles = [message.role for message in messages]
    known = dict(template.headers)
    if not known.keys() >= set(roles):
        index = next(number for number, role in enumerate(roles) if role not in known)
        place = _place_of(chats, turn_offsets, index)
        raise place.at("role").error(
            f"the template {template.name!r} has no such role",
            expected=f"one of {', '.join(known)}",
            actual=repr(roles[index]),
        )
    contents = [message.content for message in messages]
    if template.strip:
        contents = [content.strip() for content in contents]
    if template.lead:
        contents = [template.lead + content for content in contents]
    named = {role for role, parts in known.items() if any(isinstance(p, Name) for p in parts)}
    names = {}
    for index, message in enumerate(messages):
        if message.calls:
            if template.calls is None:
                place = _place_of(chats, turn_offsets, index)
                raise place.at("tool_calls").error(
                    f"the template {template.name!r} has no place for tool calls",
                    remedy="use a template that has one, or leave the calls out",
                )
            contents[index] += template.calls.around(tuple(c.as_json() for c in message.calls))
        if message.name is not None and message.role in named:
            names[index] = message.name
    return Given(
        chats=chats,
        turn_offsets=turn_offsets,
        messages=messages,
        roles=roles,
        contents=contents,
        names=names,
    )


def _place_of(chats: Sequence[Chat], turn_offsets: np.ndarray, index: int) -> Place:
    number = int(np.searchsorted(turn_offsets, index, side="right")) - 1
    chat = chats[number]
    start, stop = turn_offsets[number : number + 2]
    injected = int(stop - start) - len(chat.messages)
    return Place(provenance=chat.provenance, message=int(index - start) - injected + 1)


def _all_messages(chats: Sequence[Chat], template: Template) -> list[tuple[Message, ...]]:
    # Whether a system message is put first depends on the first message alone: the ids of
    # the first k messages must not change when more follow.
    default = template.default_system
    first = None if default is None else Message(role="system", content=default)
    return [
        _with_tools(chat, template)
        if chat.tools
        else chat.messages
        if first is None or (chat.messages and chat.messages[0].role == "system")
        else (first, *chat.messages)
        for chat in chats
    ]


def _with_tools(chat: Chat, template: Template) -> tuple[Message, ...]:
    if template.tools is None:
        raise Place(provenance=chat.provenance, field="tools").error(
            f"the template {template.name!r} has no place for tool schemas",
            remedy="use a template that has one, or leave the tools out",
        )
    first, rest = chat.messages[0] if chat.messages else None, chat.messages[1:]
    if first is None or first.role != "system":
        first, rest = Message(role="system", content=template.default_system or ""), chat.messages
    return (replace(first, content=first.content + template.tools.around(chat.tools)), *rest)
