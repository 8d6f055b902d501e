"""JSONL: one object per line, plain, gzip or zstd.

Plain files are divided into byte ranges that begin and end with a line; compressed files
are one range each, and resuming one decompresses up to the cursor. Lines are numbered as
an editor numbers them: blank lines are passed over and counted as lines, a final newline
may be missing, CRLF is fine. Everything else that is not a JSON object with the wanted
key is bad, and said with line and byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import orjson

from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.blocks import COMPRESSIONS, plain_blocks, uncompressed_blocks
from tokenreel.text.sources.lines import FileFacts, cut_between_lines, split_lines
from tokenreel.text.sources.options import ReadOptions
from tokenreel.text.sources.protocol import Cursor, Range, Step
from tokenreel.text.sources.record import Bad, Record, bad_record
from tokenreel.text.sources.rows import (
    BYTE_ORDER_MARK,
    INVALID_UTF8,
    LONE_SURROGATE,
    NUL,
    REMEDIES,
    record_of,
    too_long,
)

BOM = b"\xef\xbb\xbf"
# The escape is only one when the backslashes before it are even in number.
ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*(\\u0000)")


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
    for start, line in split_lines(blocks, start=byte, limit=options.max_record_bytes):
        place = Provenance(file=name, row=row, byte=start)
        row += 1
        if line is None:
            # Announced before its end is known: the cursor stays at the line until it is passed.
            yield too_long(place, options), {"file": name, "byte": start, "row": row - 1}
            continue
        item = parse_line(line, place, options)
        if item is not None:
            yield item, {"file": name, "byte": start + len(line) + 1, "row": row}


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
        return _diagnose(line, place, error)
    item = record_of(value, place, options)
    if type(item) is Bad and item.reason == NUL and (found := ESCAPED_NUL.search(line)):
        byte = (place.byte or 0) + found.start(1)
        return bad_record(NUL, place, byte=byte, actual=r"\u0000", remedy=REMEDIES[NUL])
    return item


def _diagnose(line: bytes, place: Provenance, error: orjson.JSONDecodeError) -> Bad:
    start = place.byte or 0
    if line.startswith(BOM):
        return bad_record(BYTE_ORDER_MARK, place, byte=start, remedy=REMEDIES[BYTE_ORDER_MARK])
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
        remedy='repair the line, or pass on_bad="skip" to count it and go on',
    )
