"""A source divided into chunks of work, numbered in order, whoever does them.

Files are divided into ranges that a worker reads by itself. A stream (a hub
dataset, an iterator) can only be read in order, so this process reads it and
hands over the records; each such chunk knows the cursor behind it, and a build
that is run again goes on from there. An iterator has no cursor: it is read again
from its start, and its chunks are known again by a digest of their records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from tokenreel.builder.spill import Summary
from tokenreel.text.sources.chain import Chained
from tokenreel.text.sources.named import Absent
from tokenreel.text.sources.record import Record
from tokenreel.text.sources.source_protocol import Cursor, Range, Reader, TextSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk of work: a range to read, records already read, or a chunk already encoded."""

    number: int
    num_bytes: int = 0
    part: Range | None = None
    done: Summary | None = None
    records: tuple[Record, ...] = ()
    stream: int | None = None
    cursor: Cursor | None = None
    content: str | None = None
    on_bad: str = "error"
    skipped: dict[str, int] = field(default_factory=dict)
    places: list[dict[str, Any]] = field(default_factory=list)


def divide(
    source: TextSource, parts: Iterable[Range], *, chunk_bytes: int, known: Known
) -> Iterator[Chunk]:
    """Yield the chunks of a source in order.

    `parts` are its ranges; `known(number)` is the summary of a chunk that is encoded already.
    """
    number = 0
    for part in parts:
        if part.kind != "stream":
            on_bad = _owner(source, part).options.on_bad
            yield Chunk(number=number, part=part, num_bytes=part.num_bytes, on_bad=on_bad)
            number += 1
            continue
        for chunk in _divide_stream(source, part, number, chunk_bytes, known):
            yield chunk
            number = chunk.number + 1


Known = Callable[[int], Summary | None]


def _divide_stream(
    source: TextSource, part: Range, number: int, chunk_bytes: int, known: Known
) -> Iterator[Chunk]:
    cursor: Cursor | None = None
    owner = _owner(source, part)
    can_seek = owner.can_seek
    if can_seek:
        while (summary := known(number)) is not None and summary.stream == part.source:
            yield Chunk(number=number, num_bytes=summary.source_bytes, done=summary)
            cursor = summary.cursor
            number += 1
    reader = source.read(part, cursor=cursor)
    while True:
        records = _take(reader, chunk_bytes)
        if not records and not reader.skipped.count:
            return
        yield Chunk(
            number=number,
            num_bytes=sum(map(_size, records)),
            records=records,
            stream=part.source,
            cursor=reader.cursor,
            content=None if can_seek else _digest(records),
            on_bad=owner.options.on_bad,
            skipped=dict(reader.skipped.reasons),
            places=list(reader.skipped.places),
        )
        reader.skipped.reasons.clear()
        reader.skipped.places.clear()
        number += 1


def sendable(source: TextSource) -> TextSource:
    """Return the source for a worker: without the iterators, which only this process can read."""
    if isinstance(source, Chained):
        return Chained([sendable(part) for part in source.sources])
    if source.can_seek:
        return source
    return Absent(source.name, reason="an iterator is read by the process that was given it")


def _owner(source: TextSource, part: Range) -> TextSource:
    return source.sources[part.source] if isinstance(source, Chained) else source


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
    return len(record.text) if record.text is not None else len(_spelled(record.value))


def _spelled(value: object) -> bytes:
    return orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS)


def _digest(records: Iterable[Record]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for record in records:
        data = record.text.encode() if record.text is not None else _spelled(record.value)
        # The length in front keeps two records apart from one that spells both.
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
