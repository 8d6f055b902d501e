"""Text files: one file is one document, byte for byte but for a byte order mark in front.

Nothing is normalised: line ends and trailing blanks stay, an empty file is an empty
document. Files are read whole, so `max_record_bytes` bounds them; small files are grouped
into ranges. A file may be compressed (.gz, .zst).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.blocks import uncompressed_blocks
from tokenreel.text.sources.extract import INVALID_UTF8, REMEDIES, text_record, too_long
from tokenreel.text.sources.files import SourceFile
from tokenreel.text.sources.lines import count_newlines
from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.record import Bad, Record, bad_record
from tokenreel.text.sources.source_protocol import Cursor, Range, Step


def group_files(sizes: Sequence[int], target_bytes: int, *, first: int = 0) -> list[Range]:
    """Return ranges of consecutive files, each closed once it has `target_bytes`.

    >>> [(part.start, part.stop) for part in group_files([5, 5, 1, 30, 2], 10)]
    [(0, 2), (2, 4), (4, 5)]
    """
    parts = []
    start, num_bytes = 0, 0
    for stop, size in enumerate(sizes, start=1):
        num_bytes += size
        if num_bytes >= target_bytes or stop == len(sizes):
            part = Range(kind="text", start=first + start, stop=first + stop, num_bytes=num_bytes)
            parts.append(part)
            start, num_bytes = stop, 0
    return parts


def document_steps(
    files: Sequence[SourceFile], part: Range, *, cursor: Cursor | None, options: ReadOptions
) -> Iterator[Step]:
    """Yield the document of each file of the range, with the cursor of the next file."""
    first = part.start if cursor is None else cursor["index"]
    for index in range(first, part.stop):
        file = files[index]
        following = files[index + 1].name if index + 1 < part.stop else None
        yield read_document(file.path, file.name, options), {"file": following, "index": index + 1}


def read_document(path: Path, name: str, options: ReadOptions) -> Record | Bad:
    """Return the document of one file, or what is wrong with it."""
    place = Provenance(file=name)
    blocks, num_bytes = [], 0
    for block in uncompressed_blocks(path, options):
        num_bytes += len(block)
        if num_bytes > options.max_record_bytes:
            return too_long(place, options)
        blocks.append(block)
    data = b"".join(blocks)
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        return _not_utf8(data, fault.start, name)
    return text_record(text, place, options)


def _not_utf8(data: bytes, byte: int, name: str) -> Bad:
    place = Provenance(file=name, row=count_newlines(data[:byte]), byte=byte)
    shown = data[byte : byte + 4].hex(" ")
    return bad_record(INVALID_UTF8, place, actual=shown, remedy=REMEDIES[INVALID_UTF8])
