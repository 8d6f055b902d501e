"""A source divided into chunks of work, numbered in order, whoever does them.

Files are divided into ranges that a worker reads by itself. A stream (a hub
dataset, an iterator) can only be read in order, so this process reads it and
hands over the records; each such chunk knows the cursor behind it, and a build
that is run again goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokenreel.text.sources.protocol import Cursor, Range, Reader, TextSource
from tokenreel.text.sources.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One piece of work: a range to be read, or records that were read already."""

    number: int
    part: Range | None = None
    records: tuple[Record, ...] = ()
    cursor: Cursor | None = None
    skipped: dict[str, int] | None = None
    num_bytes: int = 0


def divide(
    source: TextSource, chunk_bytes: int, *, done: Callable[[int], Cursor | None]
) -> Iterator[Chunk]:
    """Yield the chunks of a source in order.

    `done(number)` returns the cursor behind a chunk of a stream that is already
    encoded, or None; such chunks come without records.
    """
    number = 0
    for part in source.ranges(chunk_bytes):
        if part.kind != "stream":
            yield Chunk(number=number, part=part, num_bytes=part.num_bytes)
            number += 1
            continue
        for chunk in _divide_stream(source, part, number, chunk_bytes, done):
            yield chunk
            number = chunk.number + 1


def _divide_stream(
    source: TextSource,
    part: Range,
    number: int,
    chunk_bytes: int,
    done: Callable[[int], Cursor | None],
) -> Iterator[Chunk]:
    cursor: Cursor | None = None
    if source.can_seek:
        while (behind := done(number)) is not None:
            yield Chunk(number=number, cursor=behind)
            cursor = behind
            number += 1
    reader = source.read(part, cursor=cursor)
    while records := _take(reader, chunk_bytes):
        yield Chunk(
            number=number,
            records=records,
            cursor=reader.cursor,
            skipped=dict(reader.skipped.reasons),
            num_bytes=sum(map(_size, records)),
        )
        reader.skipped.reasons.clear()
        number += 1


def _take(reader: Reader, chunk_bytes: int) -> tuple[Record, ...]:
    records: list[Record] = []
    size = 0
    for record in reader:
        records.append(record)
        size += _size(record)
        if size >= chunk_bytes:
            break
    return tuple(records)


def _size(record: Record) -> int:
    """Estimate the bytes of a record; any fixed rule does, since it only decides where to cut."""
    return len(record.text) if record.text is not None else len(str(record.value))
