"""From a decoded object to a record: take the text, and refuse what no tokenizer should see.

Refused in any text: a lone surrogate (it has no UTF-8), NUL, and a byte order mark at
the start of a document (inside one, U+FEFF is an ordinary character). A clean text is
passed by three scans in C, about 1 µs and 0.1 ns a byte; nothing is repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.options import ReadOptions
from tokenreel.text.sources.record import Bad, Record, bad_record

INVALID_UTF8 = "invalid UTF-8"
LONE_SURROGATE = "lone surrogate"
BYTE_ORDER_MARK = "byte order mark"
NUL = "NUL in text"
TOO_LONG = "record over the limit"

REMEDIES = {
    INVALID_UTF8: 'convert the input to UTF-8, or pass on_bad="skip" to count it and go on',
    LONE_SURROGATE: 'repair the text, or pass on_bad="skip" to count it and go on',
    BYTE_ORDER_MARK: 'remove the mark, or pass on_bad="skip" to count the record and go on',
    NUL: 'remove the NUL, or pass on_bad="skip" to count it and go on',
    TOO_LONG: 'raise max_record_bytes, or pass on_bad="skip" to count it and go on',
}


def fault_in(text: str) -> tuple[str, int] | None:
    """Return (reason, character index) of the first fault of a text, or None.

    >>> fault_in("fine"), fault_in("a" + chr(0)), fault_in(chr(0xD800))
    (None, ('NUL in text', 1), ('lone surrogate', 0))
    """
    if "\x00" in text:
        return NUL, text.index("\x00")
    if text.startswith("\ufeff"):
        return BYTE_ORDER_MARK, 0
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return LONE_SURROGATE, error.start
    return None


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
        return _object_record(value, place)
    text = value.get(options.text_key)
    if type(text) is not str:
        return _missing_text(value, place, options.text_key)
    return text_record(text, place, options)


def text_record(text: str, place: Provenance, options: ReadOptions) -> Record | Bad:
    """Return the record of one text, or what is wrong with it."""
    fault = fault_in(text)
    if fault is not None:
        return _text_fault(*fault, text, place)
    # A character has at most four bytes: only texts near the limit are encoded to be measured.
    if 4 * len(text) > options.max_record_bytes:
        num_bytes = len(text.encode())
        if num_bytes > options.max_record_bytes:
            return too_long(place, options, num_bytes)
    return Record(text=text, provenance=place)


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


def strings_in(value: object) -> Iterator[str]:
    """Yield every string of a nested value, keys too.

    >>> list(strings_in({"a": ["b", {"c": 1}]}))
    ['a', 'b', 'c']
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend(part for pair in reversed(item.items()) for part in reversed(pair))
        elif isinstance(item, (list, tuple)):
            waiting.extend(reversed(item))


def _object_record(value: dict[str, Any], place: Provenance) -> Record | Bad:
    for text in strings_in(value):
        fault = fault_in(text)
        if fault is not None:
            return _text_fault(*fault, text, place)
    return Record(value=value, provenance=place)


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
            remedy="name the key of the text with text_key (None: whole objects, for chats)",
        )
    return bad_record(
        f"{key!r} is not a string",
        place,
        expected="a string",
        actual=type(value[key]).__name__,
        remedy='choose another text_key, or pass on_bad="skip" to count it and go on',
    )
