"""Cut the documents of one split into shards.

A shard is full when the next document does not fit. A document straddles shards
only if it is larger than one; then it starts a shard of its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tokenreel.errors import InputError, MismatchError
from tokenreel.store.batch import Documents
from tokenreel.store.filesystem import FileSystem
from tokenreel.store.manifest import Facts, ShardEntry
from tokenreel.store.narrow import OutOfVocabularyError
from tokenreel.store.shard_writer import ShardWriter, shard_name
from tokenreel.store.target import BuildTarget


class SplitWriter:
    """Append documents to a split; one shard is open at a time."""

    def __init__(
        self,
        name: str,
        target: BuildTarget,
        facts: Facts,
        *,
        filesystem: FileSystem,
        hasher: ThreadPoolExecutor,
    ) -> None:
        self.name = name
        self.entries: list[ShardEntry] = target.finished(name)
        self._folder = target.folder(name)
        self._facts = facts
        self._filesystem = filesystem
        self._hasher = hasher
        self._capacity = facts.shard_bytes // facts.token_dtype.itemsize
        self._open: ShardWriter | None = None
        self._stored = sum(entry.documents - entry.continues for entry in self.entries)
        self._to_skip = self._stored
        self._num_added = 0

    def take_over(self) -> int:
        self._to_skip = 0
        return self._stored

    def add(self, documents: Documents) -> None:
        start = min(self._to_skip, len(documents))
        self._to_skip -= start
        try:
            while start < len(documents):
                start = self._add_some(documents, start)
        except OutOfVocabularyError as error:
            raise self._located(error, documents) from None
        self._num_added += len(documents)

    def _add_some(self, documents: Documents, start: int) -> int:
        """Add the documents from `start` on that fit into the open shard; return the next one."""
        shard = self._shard()
        ends = documents.offsets[start:] - documents.offsets[start]
        room = self._capacity - shard.num_tokens
        stop = start + int(np.searchsorted(ends, room, side="right")) - 1
        if stop > start:
            shard.add(documents.part(start, stop))
            return stop
        if shard.num_documents:
            self._close(continues=False)
            return start
        self._add_pieces(documents.part(start, start + 1))
        return start + 1

    def _add_pieces(self, document: Documents) -> None:
        """Add one document that is larger than a shard."""
        length = int(document.offsets[1])
        if self._facts.turns:
            raise InputError(
                "a chat is larger than a shard",
                where=f"split {self.name}, document {self._num_added:,} or after",
                expected=f"<= {self._capacity:,} tokens",
                actual=length,
                remedy="use larger shards",
            )
        for start in range(0, length, self._capacity):
            stop = min(start + self._capacity, length)
            weights = None if document.weights is None else document.weights[start:stop]
            piece = Documents(
                ids=document.ids[start:stop],
                offsets=np.array([0, stop - start], np.int64),
                weights=weights,
                provenance=document.provenance,
            )
            self._shard().add(piece)
            if stop < length:
                self._close(continues=True)

    def finish(self) -> None:
        if self._to_skip:
            raise MismatchError(
                "fewer documents were added than the unfinished build already holds",
                where=f"split {self.name}",
                differing={"documents": (self._stored, self._num_added)},
                remedy="add the same documents again, or restart to begin anew",
            )
        if self._open is not None:
            self._close(continues=False)

    def abandon(self) -> None:
        if self._open is not None:
            self._open.abandon()

    def _shard(self) -> ShardWriter:
        if self._open is None:
            self._open = ShardWriter(
                self._folder,
                shard_name(len(self.entries)),
                facts=self._facts,
                filesystem=self._filesystem,
                hasher=self._hasher,
            )
        return self._open

    def _close(self, *, continues: bool) -> None:
        number = len(self.entries)
        record = self._shard().finish(split=self.name, number=number, continues=continues)
        self.entries.append(record.entry(f"{self._folder.name}/{shard_name(number)}"))
        self._open = None

    def _located(self, error: OutOfVocabularyError, documents: Documents) -> OutOfVocabularyError:
        """Tell the error in terms of the document: the id is found again in what was given."""
        wrong = (documents.ids < 0) | (documents.ids >= error.limit)
        position = int(np.argmax(wrong))
        number = int(np.searchsorted(documents.offsets, position, side="right")) - 1
        origin = documents.provenance[number] if documents.provenance else None
        place = f"split {self.name}, document {self._num_added + number:,}"
        return error.located(
            f"{place} ({origin})" if origin else place,
            position=position - int(documents.offsets[number]),
        )
