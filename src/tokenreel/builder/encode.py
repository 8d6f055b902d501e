"""Encode one chunk: records in, ids out. Runs on any worker, gives the same everywhere.

Stretches of the text are encoded by the reference too (text/tokenizers/checked_encoder.py): a
difference stops the build. Memory: a batch of text and its ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

import numpy as np

from tokenreel.builder.build_plan import BuildPlan
from tokenreel.builder.encoded import Piece, PieceMaker
from tokenreel.builder.file_counts import FileCounts
from tokenreel.builder.spill import ChunkWriter, Spill, Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import MismatchError
from tokenreel.text.provenance import Provenance, located, name_span
from tokenreel.text.sources.blocks import COMPRESSIONS
from tokenreel.text.sources.jsonl_columns import ColumnReader
from tokenreel.text.sources.record import Record, Skipped, Tally
from tokenreel.text.sources.source_protocol import Reader, TextSource
from tokenreel.text.tokenizers import Tokenizer

BATCH_CHARACTERS = 1 << 21  # a call of the fastest tokenizer has its price
CHAT_CHARACTERS = 1024  # what a chat counts for in a batch, roughly
PACKED_RATIO = 4  # bytes of text in a byte of a compressed file, roughly
Advance = Callable[[int], None]  # is told of bytes of the source that are done


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a worker needs, sent to it once."""

    source: TextSource
    tokenizer: Tokenizer
    plan: BuildPlan
    spill_folder: Path
    dtype: np.dtype


class Encoder:
    """Encode chunks of one job, in one process.

    `trail_folder` is where a worker process keeps the file that names its documents, so that its
    parent can say over which of them it died. `advance` is called with the bytes of each batch
    that is done; for a chunk they add up to its `num_bytes`.
    """

    def __init__(
        self, job: Job, *, trail_folder: Path | None = None, advance: Advance = lambda _: None
    ) -> None:
        self._job = job
        self._advance = advance
        self._trail_folder = trail_folder
        self._spill = Spill(job.spill_folder, job.dtype)
        self._engine: str = getattr(job.tokenizer, "engine", "reference")
        self._make = PieceMaker(job.plan, job.tokenizer, dtype=job.dtype)

    def encode(self, chunk: Chunk) -> Summary:
        """Encode a chunk into the spill folder, unless it is there; return its summary."""
        known = chunk.done or self._spill.verified(chunk.number)
        if known is not None:
            _refuse_other_records(chunk, known)
            self._advance(chunk.num_bytes)
            return known
        remedy = "run the same build again once the cause is gone: what was encoded is kept"
        with _Trail(self._trail_folder, chunk) as trail:
            writer = self._spill.create(chunk.number)
            try:
                with located(lambda: trail.place, remedy=remedy):
                    return writer.finish(self._encode(chunk, writer, trail))
            finally:
                writer.abandon()

    def _encode(self, chunk: Chunk, writer: ChunkWriter, trail: _Trail) -> Summary:
        records = self._records(chunk)
        skipped = Skipped(reasons=dict(chunk.skipped), places=list(chunk.places))
        if isinstance(records, (Reader, ColumnReader)):
            skipped = records.skipped
        dirt, files = Tally(), FileCounts()
        done = _Done(chunk, self._advance)
        for piece in self._pieces(chunk, records, trail, skipped):
            writer.add(piece.arrays)
            done.move(records, piece)
            dirt.merge(piece.dirt)
            files.add(piece.by_file())
        done.finish()
        documents, text_bytes, tokens = files.total()
        return Summary(
            number=chunk.number,
            documents=documents,
            text_bytes=text_bytes,
            tokens=tokens,
            source_bytes=chunk.num_bytes,
            engine=self._engine,
            stream=chunk.stream,
            cursor=chunk.cursor,
            content=chunk.content,
            skipped=dict(skipped.reasons),
            places=skipped.places,
            dirt=dirt.reasons,
            dirt_places=dirt.places,
            files=files.rows(),
        )

    def _records(self, chunk: Chunk) -> Iterable[Record] | ColumnReader:
        if chunk.part is None:
            return chunk.records
        source = self._job.source
        columns = None if self._job.plan.has_turns else source.columns(chunk.part)
        return source.read(chunk.part) if columns is None else columns

    def _pieces(
        self,
        chunk: Chunk,
        records: Iterable[Record] | ColumnReader,
        trail: _Trail,
        skipped: Skipped,
    ) -> Iterator[Piece]:
        """Yield the records of a chunk, encoded batch by batch."""
        if isinstance(records, ColumnReader):
            for columns in records:
                trail.move(columns.provenance(0), columns.provenance(len(columns) - 1))
                yield self._make.columns(columns)
            return
        for batch in _batches(records):
            trail.move(batch[0].provenance, batch[-1].provenance)
            if not self._job.plan.has_turns:
                yield self._make.documents(batch)
            elif piece := self._make.objects(batch, on_bad=chunk.on_bad, skipped=skipped):
                yield piece


class _Done:
    """Count the bytes of a chunk that are done: exactly if the reader counts them, else by text."""

    def __init__(self, chunk: Chunk, advance: Advance) -> None:
        self._advance = advance
        self._left_bytes = self._num_bytes = chunk.num_bytes
        self._text_bytes = 0
        is_packed = chunk.part is not None and Path(chunk.part.file).suffix in COMPRESSIONS
        self._ratio = PACKED_RATIO if is_packed else 1

    def move(self, records: Iterable[Record] | ColumnReader, piece: Piece) -> None:
        """Report what came with a piece."""
        self._text_bytes += int(np.sum(piece.text_bytes))
        if isinstance(records, ColumnReader):
            reached = records.num_read_bytes
        else:
            reached = self._text_bytes // self._ratio
        self._leave(max(0, self._num_bytes - reached))

    def finish(self) -> None:
        """Report the rest."""
        self._leave(0)

    def _leave(self, left_bytes: int) -> None:
        if left_bytes < self._left_bytes:
            self._advance(self._left_bytes - left_bytes)
            self._left_bytes = left_bytes


def _refuse_other_records(chunk: Chunk, known: Summary) -> None:
    if chunk.content is not None and chunk.content != known.content:
        raise MismatchError(
            "the documents are not those that the unfinished build was begun with",
            where=f"chunk {chunk.number}",
            differing={"source": (known.content, chunk.content)},
            remedy="give the same documents again, or pass restart=True to begin anew",
        )


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Group records by size, so that one call of the tokenizer is worth its while."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += CHAT_CHARACTERS if record.text is None else len(record.text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Trail:
    """Which documents this process is at, kept in a file from which a death can be explained.

    The file is deleted where the chunk ends, well or with an error that is reported; it stays
    where the process is killed.
    """

    def __init__(self, folder: Path | None, chunk: Chunk) -> None:
        self._file: TextIO | None = None
        if folder is not None:
            path = folder / f"{os.getpid()}.{chunk.number:06d}.at"
            self._file = path.open("w", encoding="utf-8")
        place = f"chunk {chunk.number}"
        if chunk.part is not None and chunk.part.file:
            place = f"{chunk.part.file} from line {chunk.part.row + 1:,} on"
        self._write(place)

    def __enter__(self) -> _Trail:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None and (error is None or isinstance(error, Exception)):
            self._file.close()
            Path(self._file.name).unlink(missing_ok=True)

    def move(self, first: Provenance, last: Provenance) -> None:
        """Write down which documents come next."""
        self._write(name_span(first, last))

    def _write(self, place: str) -> None:
        self.place = place
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(place)
            self._file.flush()
