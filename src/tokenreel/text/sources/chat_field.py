"""A chat that one field of a record holds: a list of messages, an object, or the JSON of either.

A list of messages becomes {"messages": …}. What the record says beside it of system text and
tools belongs to the chat as well; its other fields are left alone.
"""

from __future__ import annotations

import json
from typing import Any

from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.record import Bad, bad_record

BESIDE = ("system", "system_prompt", "tools")


def chat_in(value: dict[str, Any], place: Provenance, key: str) -> dict[str, Any] | Bad:
    """Return the chat in a field of an object, or what is wrong with it.

    >>> chat_in({"conv": '[{"role": "user"}]', "tools": []}, Provenance(), "conv")
    {'tools': [], 'messages': [{'role': 'user'}]}
    """
    if key not in value:
        return _no_chat(place, f"no field {key!r}", _keys(value))
    chat = value[key]
    if isinstance(chat, str):
        try:
            chat = json.loads(chat, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            return _no_chat(place, f"{key!r} is no chat", f"{chat[:20]!r}, no JSON: {error}")
    beside = {name: value[name] for name in BESIDE if name in value and name != key}
    if isinstance(chat, (list, tuple)):
        return {**beside, "messages": list(chat)}
    if isinstance(chat, dict):
        return {**beside, **chat}
    return _no_chat(place, f"{key!r} is no chat", "null" if chat is None else type(chat).__name__)


def _no_chat(place: Provenance, reason: str, actual: str) -> Bad:
    return bad_record(
        reason,
        place,
        expected="a list of messages, an object, or the JSON of either",
        actual=actual,
        remedy="name the field that holds the chat with text_key, or leave out chat=True if the "
        'records are documents; on_bad="skip" counts it and goes on',
    )


def _keys(value: dict[str, Any]) -> str:
    return f"the fields {', '.join(repr(name) for name in list(value)[:20]) or 'none'}"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("an object has the same key twice")
    return unique
