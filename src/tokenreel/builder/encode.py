"""Encode one chunk: records in, ids out. Runs on any worker, gives the same everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.builder.plan import BuildPlan
from tokenreel.builder.spill import Spill, Summary
from tokenreel.builder.work import Chunk
from tokenreel.store.narrow import narrow
from tokenreel.store.origins import OriginTable
from tokenreel.text.chats import read_chat, render
from tokenreel.text.sources.protocol import TextSource
from tokenreel.text.sources.record import Record
from tokenreel.text.tokenizers import Tokenizer, check_sample
from tokenreel.text.turns import TURN

BATCH_BYTES = 1024 * 1024
SAMPLE_EVERY = 1000  # one document in so many is encoded by the reference as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a worker needs, sent to it once."""

    source: TextSource
    tokenizer: Tokenizer
    plan: BuildPlan
    spill_folder: Path
    dtype: np.dtype


def encode_chunk(job: Job, chunk: Chunk) -> Summary:
    """Encode a chunk into the spill folder, unless it is there already; return its summary."""
    spill = Spill(job.spill_folder)
    known = spill.summary(chunk.number)
    if known is not None:
        return known
    trail = job.spill_folder / f"{chunk.number:06d}.at"
    records, skipped = _records(job, chunk)
    encoded = _Encoded(job)
    for batch in _batches(records):
        # If this process dies, the file says where: the next thing it did was this batch.
        trail.write_text(str(batch[0].provenance))
        encoded.add(batch)
    summary = Summary(
        number=chunk.number,
        documents=encoded.num_documents,
        tokens=encoded.num_tokens,
        text_bytes=encoded.num_text_bytes,
        engine=getattr(job.tokenizer, "engine", "reference"),
        cursor=chunk.cursor,
        skipped=skipped(),
    )
    written = spill.write(summary, encoded.arrays())
    trail.unlink(missing_ok=True)
    return written


def _records(job: Job, chunk: Chunk):  # type: ignore[no-untyped-def]
    """Return the records of a chunk, and a function that tells what was skipped among them."""
    if chunk.part is None:
        return iter(chunk.records), lambda: dict(chunk.skipped or {})
    reader = job.source.read(chunk.part)
    return reader, lambda: dict(reader.skipped.reasons)


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Group records by size, so that one call of the tokenizer is worth its while."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.text) if record.text is not None else 1024
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Encoded:
    """The arrays of a chunk as they grow, batch by batch."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._end_id = job.plan.end_id(job.tokenizer)
        self._ids: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._turns: list[np.ndarray] = []
        self._turn_counts: list[np.ndarray] = []
        self._text_bytes: list[np.ndarray] = []
        self._origins: list[np.ndarray] = []
        self._strings: list[bytes] = []
        self._hashes: list[bytes] = []
        self._table = OriginTable()
        self.num_documents = 0
        self.num_tokens = 0
        self.num_text_bytes = 0

    def add(self, batch: Sequence[Record]) -> None:
        """Encode a batch of records."""
        ids, lengths, text_bytes = (
            self._chats(batch) if self._job.plan.is_chat else self._documents(batch)
        )
        self._ids.append(narrow(ids, self._job.dtype, limit=self._job.tokenizer.vocab_size))
        self._lengths.append(lengths)
        self._text_bytes.append(text_bytes)
        if self._job.plan.provenance:
            records, strings = self._table.add([record.provenance for record in batch])
            self._origins.append(records)
            self._strings.append(strings)
        if self._job.plan.deduplicate:
            self._hashes += _content_hashes(ids, lengths)
        self.num_documents += len(batch)
        self.num_tokens += len(ids)
        self.num_text_bytes += int(text_bytes.sum())

    def _documents(self, batch: Sequence[Record]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        texts = [record.text or "" for record in batch]
        encoded = self._job.tokenizer.encode_batch(texts)
        self._check_sample(texts, batch)
        lengths = np.diff(encoded.offsets)
        ids = encoded.ids
        if self._end_id is not None:
            ids = np.insert(ids, encoded.offsets[1:], self._end_id)
            lengths = lengths + 1
        return ids, lengths, np.array([len(text.encode()) for text in texts], np.int64)

    def _chats(self, batch: Sequence[Record]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        chats = [read_chat(record.value, record.provenance) for record in batch]
        plan = self._job.plan
        if plan.template is None:
            raise AssertionError("a chat build has a template")
        rendered = render(chats, plan.template, tokenizer=self._job.tokenizer, policy=plan.policy)
        contents = [[message.content for message in chat.messages] for chat in chats]
        self._check_sample(["\n".join(texts) for texts in contents], batch)
        self._turns.append(rendered.turns)
        self._turn_counts.append(np.diff(rendered.turn_offsets))
        sizes = [sum(len(text.encode()) for text in texts) for texts in contents]
        return rendered.ids, np.diff(rendered.offsets), np.array(sizes, np.int64)

    def _check_sample(self, texts: Sequence[str], batch: Sequence[Record]) -> None:
        """Compare engine and reference on a fixed sample: some of each chunk, one in a thousand."""
        chosen = [
            i
            for i in range(len(batch))
            if (self.num_documents + i) % SAMPLE_EVERY == 0 and len(texts[i]) <= BATCH_BYTES
        ]
        if chosen:
            sample = [texts[i] for i in chosen]
            check_sample(self._job.tokenizer, sample, [batch[i].provenance for i in chosen])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything, end to end."""
        arrays = {
            "ids": _joined(self._ids, self._job.dtype),
            "offsets": _offsets(_joined(self._lengths, np.dtype(np.int64))),
            "text_bytes": _joined(self._text_bytes, np.dtype(np.int64)),
        }
        if self._job.plan.is_chat:
            arrays["turns"] = _joined(self._turns, TURN)
            arrays["turn_offsets"] = _offsets(_joined(self._turn_counts, np.dtype(np.int64)))
        if self._job.plan.provenance:
            arrays["origins"] = np.concatenate(self._origins) if self._origins else np.empty(0)
            arrays["strings"] = np.frombuffer(b"".join(self._strings), np.uint8)
        if self._job.plan.deduplicate:
            arrays["hashes"] = np.frombuffer(b"".join(self._hashes), "V16")
        return arrays


def _joined(parts: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _content_hashes(ids: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Hash the ids of each document: equal text and structure, equal hash."""
    offsets = _offsets(lengths)
    data = np.ascontiguousarray(ids, np.uint32)
    return [
        hashlib.blake2b(data[offsets[i] : offsets[i + 1]].data, digest_size=16).digest()
        for i in range(len(lengths))
    ]
