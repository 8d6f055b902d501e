"""Write one shard: its files first, its record last.

    shard_00000.bin   .docs  [.turns] [.weights] [.origins .strings]     durable, named
    ── fsync of the folder ──
    shard_00000.json                                                     durable, named

A crash before the last rename leaves an unfinished shard that the next build
writes again; after it, the shard is finished for good.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tokenreel.store.batch import Documents
from tokenreel.store.blocks import BlockWriter
from tokenreel.store.filesystem import FileSystem
from tokenreel.store.manifest import Facts
from tokenreel.store.narrow import narrow
from tokenreel.store.origins import OriginTable
from tokenreel.store.record import RECORD_SUFFIX, ShardRecord

OFFSET = np.dtype("<u8")
NARROW_TOKENS = 1024 * 1024  # cast this many ids at a time: a mapped giant is never in memory whole


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
        self._files: dict[str, BlockWriter] = {}
        for kind in facts.kinds:
            self._files[kind] = BlockWriter(
                folder / f"{name}.{kind}",
                block_bytes=facts.block_bytes,
                filesystem=filesystem,
                hasher=hasher,
            )
        self._files["docs"].write(np.zeros(1, OFFSET))

    def add(self, documents: Documents) -> None:
        """Append documents, casting and range-checking their ids."""
        base = self.num_tokens
        for start in range(0, len(documents.ids), NARROW_TOKENS):
            ids = documents.ids[start : start + NARROW_TOKENS]
            self._files["bin"].write(
                narrow(ids, self._facts.token_dtype, limit=self._facts.vocab_size)
            )
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
        self.num_tokens += len(documents.ids)
        self.num_documents += len(documents)

    def _add_turns(self, documents: Documents, base: int) -> None:
        if documents.turns is None or documents.turn_offsets is None:
            return
        turns = documents.turns.copy()
        counts = np.diff(documents.turn_offsets)
        starts = np.repeat(documents.offsets[:-1] + base, counts)
        turns["start"] += starts.astype(np.uint64)
        self._files["turns"].write(turns)
        self.num_turns += len(turns)

    def finish(self, *, split: str, number: int, continues: bool) -> ShardRecord:
        """Make the shard durable and return its record."""
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
            blocks={kind: file.digests for kind, file in self._files.items()},
        )
        self._filesystem.write_whole(
            self._folder / f"{self._name}{RECORD_SUFFIX}", record.to_bytes()
        )
        return record

    def abandon(self) -> None:
        """Remove what is not finished."""
        for file in self._files.values():
            file.abandon()


def shard_name(number: int) -> str:
    """Return the name of the n-th shard of a split.

    >>> shard_name(3)
    'shard_00003'
    """
    return f"shard_{number:05d}"
