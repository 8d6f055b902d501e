"""JSONL: one object per line, plain, gzip or zstd.

Plain files are divided into byte ranges that begin and end with a line; compressed files
are one range each, and resuming one decompresses up to the cursor. Lines are numbered as
an editor numbers them: blank lines are passed over and counted as lines, a final newline
may be missing, CRLF is fine. Everything else that is not a JSON object with the wanted
key, once, is bad, and said with line and byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.blocks import COMPRESSIONS, plain_blocks, uncompressed_blocks
from tokenreel.text.sources.dirt import LONE_SURROGATE, REMOVED_MARK
from tokenreel.text.sources.extract import (
    INVALID_UTF8,
    KEY_TWICE,
    REMEDIES,
    num_keys,
    record_of,
    too_long,
)
from tokenreel.text.sources.lines import FileFacts, cut_between_lines, split_lines
from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.record import Bad, Record, bad_record
from tokenreel.text.sources.source_protocol import Cursor, Range, Step

BOM = b"\xef\xbb\xbf"
KEY_END = re.compile(rb'"[ \t\r]*:')
LONG_INTEGER = re.compile(rb"[0-9]{19}")  # orjson makes a float of one of more than 64 bits
TOO_DEEP = "broken JSON (nested too deeply)"
REPAIR = 'repair the line, or pass on_bad="skip" to count it and go on'


def divide_lines(path: Path, name: str, *, facts: FileFacts, target_bytes: int) -> list[Range]:
    """Return the ranges of one file: byte ranges of a plain one, the whole of a compressed one."""
    if path.suffix in COMPRESSIONS:
        return [Range(kind="jsonl", file=name, stop=facts.num_bytes, num_bytes=facts.num_bytes)]
    if facts.num_bytes == 0:
        return []
    cuts = cut_between_lines(path, facts, target_bytes)
    stops = [byte for byte, _ in cuts[1:]] + [facts.num_bytes]
    return [
        Range(kind="jsonl", file=name, start=start, stop=stop, row=row, num_bytes=stop - start)
        for (start, row), stop in zip(cuts, stops, strict=True)
    ]


def line_steps(
    path: Path, part: Range, *, cursor: Cursor | None, options: ReadOptions
) -> Iterator[Step]:
    """Yield each line's record, or what is wrong with it, with the cursor of the next line."""
    byte, row = (part.start, part.row) if cursor is None else (cursor["byte"], cursor["row"])
    if path.suffix in COMPRESSIONS:
        blocks = uncompressed_blocks(path, options, start=byte)
    else:
        blocks = plain_blocks(path, start=byte, stop=part.stop)
    name = part.file
    for start, number, line in split_lines(blocks, start=byte, limit=options.max_record_bytes):
        place = Provenance(file=name, row=row + number, byte=start)
        if line is None:
            # Announced before its end is known: the cursor stays at the line until it is passed.
            yield too_long(place, options), {"file": name, "byte": start, "row": row + number}
            continue
        item = parse_line(line, place, options)
        if item is not None:
            following = {"file": name, "byte": start + len(line) + 1, "row": row + number + 1}
            yield item, following


def parse_line(line: bytes, place: Provenance, options: ReadOptions) -> Record | Bad | None:
    """Return the record of one line, what is wrong with it, or None for a blank line.

    >>> parse_line(b'{"text": "hi"}', Provenance(), ReadOptions()).text
    'hi'
    """
    if not line or line.isspace():
        return None
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if line.startswith(BOM):
            return _behind_mark(line, place, options)
        return _diagnose(line, place, error)
    try:
        if options.text_key is None and LONG_INTEGER.search(line):
            value = json.loads(line)
        twice = _repeated_key(line, value, options) if isinstance(value, dict) else None
    except RecursionError:  # orjson reads 1,024 levels, json some hundred fewer
        return bad_record(TOO_DEEP, place, remedy=REPAIR)
    if twice is not None:
        return bad_record(
            KEY_TWICE,
            place,
            expected="each key once",
            actual=f"{twice!r} twice",
            remedy=REMEDIES[KEY_TWICE],
        )
    return record_of(value, place, options)


def _repeated_key(line: bytes, value: dict[str, Any], options: ReadOptions) -> str | None:
    """Return a key that an object has twice, so that nobody knows which is meant, or None.

    Of a document the keys of the text and of the id count, of a whole object every key in it.
    """
    # Each key is followed by a colon: where there are no more colons than keys, none is repeated.
    if len(KEY_END.findall(line)) == num_keys(value):
        return None
    objects: list[list[str]] = []  # the keys of each, the outermost last

    def note(pairs: list[tuple[str, object]]) -> None:
        objects.append([name for name, _ in pairs])

    json.loads(line, object_pairs_hook=note, parse_int=str, parse_float=str)
    if options.text_key is None:
        repeated = [name for names in objects for name in names if names.count(name) > 1]
    else:
        names, wanted = objects[-1], (options.text_key, options.id_key)
        repeated = [name for name in names if name in wanted and names.count(name) > 1]
    return repeated[0] if repeated else None


def _behind_mark(line: bytes, place: Provenance, options: ReadOptions) -> Record | Bad | None:
    """Return what `parse_line` returns for a line without the mark that it begins with."""
    after = replace(place, byte=(place.byte or 0) + len(BOM))
    item = parse_line(line[len(BOM) :], after, options)
    if not isinstance(item, Record):
        return item
    found = replace(item.provenance, byte=place.byte)
    return replace(item, provenance=found, dirt=tuple(dict.fromkeys((REMOVED_MARK, *item.dirt))))


def _diagnose(line: bytes, place: Provenance, error: orjson.JSONDecodeError) -> Bad:
    start = place.byte or 0
    try:
        decoded = line.decode()
    except UnicodeDecodeError as fault:
        shown = line[fault.start : fault.start + 4].hex(" ")
        reason = LONE_SURROGATE if shown.startswith(("ed a", "ed b")) else INVALID_UTF8
        return bad_record(
            reason, place, byte=start + fault.start, actual=shown, remedy=REMEDIES[reason]
        )
    byte = start + len(decoded[: error.pos].encode())
    if "surrogate" in error.msg:
        return bad_record(
            LONE_SURROGATE,
            place,
            byte=byte,
            actual=decoded[max(0, error.pos - 8) : error.pos + 8],
            remedy=REMEDIES[LONE_SURROGATE],
        )
    shown = repr(decoded[error.pos : error.pos + 20]) if error.pos < len(decoded) else "its end"
    return bad_record(
        f"broken JSON ({error.msg})",
        place,
        byte=byte,
        expected="one JSON object per line",
        actual=shown,
        remedy=REPAIR,
    )
