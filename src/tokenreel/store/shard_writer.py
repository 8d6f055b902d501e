"""Write one shard: its files first, its record last.

    shard_00000.bin   .docs  [.turns] [.weights] [.origins .strings] [.records .objects]
    ── durable, named; fsync of the folder ──
    shard_00000.json                                                  durable, named

A crash before the last rename leaves an unfinished shard that the next build
writes again; after it, the shard is finished for good.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from tokenreel.canonical import MAX_JSON_BYTES
from tokenreel.errors import WriteError
from tokenreel.filesystem import FileSystem
from tokenreel.store.block_writer import BlockWriter
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.document_records import Records
from tokenreel.store.manifest import Facts
from tokenreel.store.narrow import narrow_into
from tokenreel.store.origins import OriginTable
from tokenreel.store.shard_record import RECORD_SUFFIX, ShardRecord
from tokenreel.text.turns import TURN

OFFSET = np.dtype("<u8")


class ShardWriter:
    """Stream documents into one shard; `finish` makes it a finished shard."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        facts: Facts,
        filesystem: FileSystem,
        hasher: ThreadPoolExecutor,
    ) -> None:
        self.num_tokens = 0
        self.num_documents = 0
        self.num_turns = 0
        self._folder = folder
        self._name = name
        self._facts = facts
        self._filesystem = filesystem
        self._origins = OriginTable()
        self._records_bytes = 0
        self._files: dict[str, BlockWriter] = {}
        try:
            for kind in facts.kinds:
                self._files[kind] = BlockWriter(
                    folder / f"{name}.{kind}",
                    block_bytes=facts.block_bytes,
                    filesystem=filesystem,
                    hasher=hasher,
                )
            for kind in {"docs", "records"} & set(facts.kinds):
                self._files[kind].write(np.zeros(1, OFFSET))
        except BaseException:
            self.abandon()
            raise

    def add(self, documents: DocumentBatch) -> None:
        """Append documents, casting and range-checking their ids."""
        base = self.num_tokens
        self._add_tokens(documents.ids)
        self._files["docs"].write((documents.offsets[1:] + base).astype(OFFSET))
        if self._facts.turns:
            self._add_turns(documents, base)
        if self._facts.weights is not None:
            weights = np.asarray(documents.weights).astype(self._facts.weights, copy=False)
            self._files["weights"].write(weights)
        if self._facts.provenance:
            origins = documents.provenance or [None] * len(documents)
            records, strings = self._origins.add(origins)
            self._files["origins"].write(records)
            self._files["strings"].write(strings)
        if self._facts.records:
            self._add_records(documents)
        self.num_tokens += len(documents.ids)
        self.num_documents += len(documents)

    def _add_tokens(self, ids: np.ndarray) -> None:
        """Cast ids straight into the block that is written next."""
        file = self._files["bin"]
        start = 0
        while start < len(ids):
            room = file.room(self._facts.token_dtype)
            stop = min(start + len(room), len(ids))
            narrow_into(ids[start:stop], room[: stop - start], limit=self._facts.vocab_size)
            file.advance((stop - start) * room.itemsize)
            start = stop

    def _add_turns(self, documents: DocumentBatch, base: int) -> None:
        if documents.turns is None or documents.turn_offsets is None:
            return
        # Field by field into zeros: the padding of a record is part of the bytes that are hashed.
        turns = np.zeros(len(documents.turns), TURN)
        for name in TURN.names or ():
            turns[name] = documents.turns[name]
        counts = np.diff(documents.turn_offsets)
        starts = np.repeat(documents.offsets[:-1] + base, counts)
        turns["start"] += starts.astype(np.uint64)
        self._files["turns"].write(turns)
        self.num_turns += len(turns)

    def _add_records(self, documents: DocumentBatch) -> None:
        given = documents.records or [None] * len(documents)
        records = given if isinstance(given, Records) else Records.of(given)
        offsets = records.offsets.astype(np.int64)
        moved = offsets[1:] - offsets[0] + self._records_bytes
        self._files["records"].write(moved.astype(OFFSET))
        self._files["objects"].write(records.text[int(offsets[0]) : int(offsets[-1])])
        self._records_bytes += int(offsets[-1] - offsets[0])

    def finish(self, *, split: str, number: int, continues: bool) -> ShardRecord:
        """Make the shard durable and return its record."""
        for file in self._files.values():
            file.end()
        for file in self._files.values():
            file.finish()
        self._filesystem.sync_dir(self._folder)
        record = ShardRecord(
            facts=self._facts,
            split=split,
            number=number,
            tokens=self.num_tokens,
            documents=self.num_documents,
            turns=self.num_turns,
            strings_bytes=self._origins.strings_bytes,
            continues=continues,
            records_bytes=self._records_bytes if self._facts.records else None,
            blocks={kind: file.digests for kind, file in self._files.items()},
        )
        self._write_record(record.to_bytes())
        return record

    def _write_record(self, data: bytes) -> None:
        path = self._folder / f"{self._name}{RECORD_SUFFIX}"
        if len(data) > MAX_JSON_BYTES:
            raise WriteError(
                "the record of the shard would be too large to be read",
                where=path,
                expected=f"<= {MAX_JSON_BYTES:,} bytes",
                actual=len(data),
                remedy="use larger blocks or smaller shards",
            )
        self._filesystem.write_whole(path, data)

    def abandon(self) -> None:
        """Remove what is not finished; every file is closed, whatever happens to another."""
        with ExitStack() as files:
            for file in self._files.values():
                files.callback(file.abandon)


def shard_name(number: int) -> str:
    """Return the name of the n-th shard of a split.

    >>> shard_name(3)
    'shard_00003'
    """
    return f"shard_{number:05d}"
