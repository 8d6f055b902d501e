"""From a decoded object to a record: take its text, clean it (dirt.py), or say what is wrong."""

from __future__ import annotations

from typing import Any

from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.chat_field import chat_in
from tokenreel.text.sources.dirt import (
    LONE_SURROGATE,
    MOSTLY_NUL,
    clean,
    clean_object,
    fault_in,
    strings_in,
)
from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.record import Bad, Record, bad_record

INVALID_UTF8 = "invalid UTF-8"
TOO_LONG = "record over the limit"
KEY_TWICE = "a key twice in one object"

REMEDIES = {
    INVALID_UTF8: 'convert the input to UTF-8, or pass on_bad="skip" to count it and go on',
    LONE_SURROGATE: 'repair the text, or pass on_bad="skip" to count it and go on',
    MOSTLY_NUL: 'convert it to UTF-8 if it is UTF-16, or pass on_bad="skip" to count it and go on',
    KEY_TWICE: 'write each key once, or pass on_bad="skip" to count it and go on',
    TOO_LONG: 'raise max_record_bytes, or pass on_bad="skip" to count it and go on',
}


def record_of(value: object, place: Provenance, options: ReadOptions) -> Record | Bad:
    """Return the record of one decoded object, or what is wrong with it."""
    if not isinstance(value, dict):
        return bad_record(
            "not an object",
            place,
            expected=f"an object with the key {options.text_key!r}"
            if options.text_key
            else "an object",
            actual=type(value).__name__,
            remedy="write one JSON object per record",
        )
    if options.id_key is not None and isinstance(name := value.get(options.id_key), (str, int)):
        place = Provenance(file=place.file, row=place.row, byte=place.byte, id=str(name))
    if options.text_key is None:
        chat = value if options.chat_key is None else chat_in(value, place, options.chat_key)
        return chat if isinstance(chat, Bad) else _object_record(chat, place)
    text = value.get(options.text_key)
    if type(text) is not str:
        return _missing_text(value, place, options.text_key)
    return text_record(text, place, options)


def text_record(text: str, place: Provenance, options: ReadOptions) -> Record | Bad:
    """Return the record of one text, or what is wrong with it."""
    fault = fault_in(text)
    if fault is not None:
        return _text_fault(*fault, text, place)
    text, dirt = clean(text)
    # A character has at most four bytes: only texts near the limit are encoded to be measured.
    if 4 * len(text) > options.max_record_bytes:
        num_bytes = len(text.encode())
        if num_bytes > options.max_record_bytes:
            return too_long(place, options, num_bytes)
    return Record(text=text, provenance=place, dirt=dirt)


def too_long(place: Provenance, options: ReadOptions, num_bytes: int | None = None) -> Bad:
    """Return the Bad for a record longer than `max_record_bytes`."""
    limit = options.max_record_bytes
    return bad_record(
        TOO_LONG,
        place,
        expected=f"at most {limit:,} bytes",
        actual="more" if num_bytes is None else f"{num_bytes:,}",
        remedy=REMEDIES[TOO_LONG],
    )


def num_keys(value: object) -> int:
    """Return how many keys the objects in a nested value have.

    >>> num_keys({"a": [{"b": 1}, {"b": 2}]})
    3
    """
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            count += len(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return count


def _object_record(value: dict[str, Any], place: Provenance) -> Record | Bad:
    for text in strings_in(value):
        fault = fault_in(text)
        if fault is not None:
            return _text_fault(*fault, text, place)
    value, dirt = clean_object(value)
    return Record(value=value, provenance=place, dirt=dirt)


def _text_fault(reason: str, index: int, text: str, place: Provenance) -> Bad:
    shown = ascii(text[max(0, index - 10) : index + 10])
    return bad_record(
        reason, place, actual=f"{shown} at character {index:,}", remedy=REMEDIES[reason]
    )


def _missing_text(value: dict[str, Any], place: Provenance, key: str) -> Bad:
    keys = ", ".join(repr(name) for name in list(value)[:20]) or "none"
    if key not in value:
        return bad_record(
            "missing key",
            place,
            expected=repr(key),
            actual=f"the keys {keys}",
            remedy='name the key of the text with text_key, or pass on_bad="skip" to count it and '
            "go on; chats are built with chat=True",
        )
    return bad_record(
        f"{key!r} is not a string",
        place,
        expected="a string",
        actual="null" if value[key] is None else type(value[key]).__name__,
        remedy='choose another text_key, or pass on_bad="skip" to count it and go on',
    )
