"""Encode one chunk: records in, ids out. Runs on any worker, gives the same everywhere.

One two-thousandth of the text, a stretch of every batch, is encoded by the reference too: a
difference stops the build. Memory: a batch of text and the ids of a piece.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tokenreel.builder.piece import Piece
from tokenreel.builder.plan import BuildPlan
from tokenreel.builder.spill import ChunkWriter, Spill, Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import InputError, MismatchError, TokenreelError, WorkerError
from tokenreel.text.sources.protocol import Reader, TextSource
from tokenreel.text.sources.record import Record
from tokenreel.text.tokenizers import Tokenizer

BATCH_CHARACTERS = 1 << 22  # a call of the fastest tokenizer costs a millisecond by itself
PIECE_BYTES = 16 << 20
CHAT_CHARACTERS = 1024  # what a chat counts for in a batch, roughly


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a worker needs, sent to it once."""

    source: TextSource
    tokenizer: Tokenizer
    plan: BuildPlan
    spill_folder: Path
    dtype: np.dtype


class Encoder:
    """Encode chunks of one job, in one process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._spill = Spill(job.spill_folder, job.dtype)
        self._engine: str = getattr(job.tokenizer, "engine", "reference")

    def encode(self, chunk: Chunk) -> Summary:
        """Encode a chunk into the spill folder, unless it is there; return its summary."""
        known = chunk.done or self._spill.verified(chunk.number)
        if known is not None:
            _refuse_other_records(chunk, known)
            return known
        trail = _Trail(self._job.spill_folder, chunk)
        writer = self._spill.create(chunk.number)
        try:
            with _located(trail):
                summary = writer.finish(self._encode(chunk, writer, trail))
        finally:
            writer.abandon()
        trail.remove()
        return summary

    def _encode(self, chunk: Chunk, writer: ChunkWriter, trail: _Trail) -> Summary:
        records = chunk.records if chunk.part is None else self._job.source.read(chunk.part)
        total = Summary(number=chunk.number)
        piece = self._piece()
        for batch in _batches(records):
            trail.move(batch)
            piece.add(batch)
            if piece.text_bytes >= PIECE_BYTES:
                total = _written(piece, writer, total)
                piece = self._piece()
        total = _written(piece, writer, total)
        return replace(
            total,
            source_bytes=chunk.num_bytes,
            engine=self._engine,
            stream=chunk.stream,
            cursor=chunk.cursor,
            content=chunk.content,
            skipped=dict(records.skipped.reasons) if isinstance(records, Reader) else chunk.skipped,
            places=records.skipped.places if isinstance(records, Reader) else chunk.places,
        )

    def _piece(self) -> Piece:
        job = self._job
        return Piece(job.plan, job.tokenizer, dtype=job.dtype, engine=self._engine)


def _written(piece: Piece, writer: ChunkWriter, total: Summary) -> Summary:
    if not piece.num_documents:
        return total
    arrays = piece.arrays()
    writer.add(arrays)
    return replace(
        total,
        documents=total.documents + piece.num_documents,
        tokens=total.tokens + len(arrays["ids"]),
        text_bytes=total.text_bytes + piece.text_bytes,
    )


def _refuse_other_records(chunk: Chunk, known: Summary) -> None:
    if chunk.content is not None and chunk.content != known.content:
        raise MismatchError(
            "the documents are not those that the unfinished build was begun with",
            where=f"chunk {chunk.number}",
            differing={"source": (known.content, chunk.content)},
            remedy="give the same documents again, or restart (--restart) to begin anew",
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
    """A file that says what this process is at: the last thing it says if it dies."""

    def __init__(self, folder: Path, chunk: Chunk) -> None:
        self._path = folder / f"{os.getpid()}.{chunk.number:06d}.at"
        self.place = f"chunk {chunk.number}"
        if chunk.part is not None and chunk.part.file:
            self.place = f"{chunk.part.file} from line {chunk.part.row + 1:,} on"
        self._path.write_text(self.place)

    def move(self, batch: Sequence[Record]) -> None:
        """Say which documents come next."""
        first, last = batch[0].provenance, batch[-1].provenance
        self.place = str(first) if first == last else f"{first} to {last}"
        self._path.write_text(self.place)

    def remove(self) -> None:
        """Say that all is well."""
        self._path.unlink(missing_ok=True)


@contextmanager
def _located(trail: _Trail) -> Iterator[None]:
    """Say of every failure in which documents it happened."""
    try:
        yield
    except InputError as error:
        trail.remove()
        if error.where is not None:
            raise
        raise InputError(
            error.what,
            where=trail.place,
            expected=error.expected,
            actual=error.actual,
            remedy=error.remedy,
        ) from error
    except TokenreelError:
        trail.remove()
        raise
    except Exception as error:
        trail.remove()
        said = "out of memory" if isinstance(error, MemoryError) else "encoding failed"
        raise WorkerError(
            f"{said}: {type(error).__name__}: {error}".removesuffix(": "),
            where=trail.place,
            remedy="run the same build again once the cause is gone: what was encoded is kept",
        ) from error
