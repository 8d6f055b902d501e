"""Cut the documents of one split into shards.

A shard is full when the next document does not fit. A document straddles shards
only if it is larger than one; then it starts a shard of its own.

The shards that an unfinished build left are kept. Documents added again are cut
and hashed as before, at the speed of SHA-256, but not written: what they would
give must be what is there, or the build is refused as one of other documents.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tokenreel.errors import ConfigError, InputError, MismatchError, differing_fields
from tokenreel.filesystem import NOWHERE, FileSystem
from tokenreel.store.build_folder import BuildTarget
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.manifest import Facts, ShardEntry
from tokenreel.store.narrow import OutOfVocabularyError
from tokenreel.store.shard_writer import ShardWriter, shard_name

SAME_AGAIN = "add the same documents again, or pass restart=True to begin anew"


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
        self.entries: list[ShardEntry] = []
        self._finished = target.finished(name)
        self._folder = target.folder(name)
        self._facts = facts
        self._filesystem = filesystem
        self._hasher = hasher
        self._capacity = facts.shard_bytes // facts.token_dtype.itemsize
        self._open: ShardWriter | None = None
        self._num_added = 0
        self._num_taken = 0

    @property
    def num_tokens(self) -> int:
        """How many tokens were added or taken over."""
        begun = self._open.num_tokens if self._open is not None else 0
        return sum(entry.tokens for entry in self.entries) + begun

    @property
    def num_safe(self) -> int:
        """How many documents lie in finished shards."""
        return sum(entry.documents - entry.continues for entry in self.entries)

    def take_over(self) -> int:
        """Keep the finished shards as they are and return how many documents they hold."""
        if self._num_added:
            raise ConfigError("resume comes before the first document", where=f"split {self.name}")
        self.entries = list(self._finished)
        self._num_taken = self.num_safe
        return self._num_taken

    def add(self, documents: DocumentBatch) -> None:
        """Append documents, closing shards as they fill."""
        start = 0
        try:
            while start < len(documents):
                start = self._add_some(documents, start)
        except OutOfVocabularyError as error:
            raise self._located(error, documents) from None
        self._num_added += len(documents)

    def _add_some(self, documents: DocumentBatch, start: int) -> int:
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
        self._add_pieces(documents.part(start, start + 1), number=self._next + start)
        return start + 1

    def _add_pieces(self, document: DocumentBatch, *, number: int) -> None:
        """Add one document that is larger than a shard."""
        length = int(document.offsets[1])
        if self._facts.turns:
            raise InputError(
                "a chat is larger than a shard",
                where=f"split {self.name}, document {number:,}",
                expected=f"<= {self._capacity:,} tokens",
                actual=length,
                remedy="use larger shards",
            )
        for start in range(0, length, self._capacity):
            stop = min(start + self._capacity, length)
            weights = None if document.weights is None else document.weights[start:stop]
            piece = DocumentBatch(
                ids=document.ids[start:stop],
                offsets=np.array([0, stop - start], np.int64),
                weights=weights,
                provenance=document.provenance,
                # The rest of a document has no record of its own: an empty text.
                records=document.records if start == 0 or not self._facts.records else [None],
            )
            self._shard().add(piece)
            if stop < length:
                self._close(continues=True)

    def finish(self) -> None:
        """Close the last shard."""
        if self._open is not None:
            self._close(continues=False)
        if len(self.entries) < len(self._finished):
            stored = sum(entry.documents - entry.continues for entry in self._finished)
            raise MismatchError(
                "fewer documents were added than the unfinished build already holds",
                where=f"split {self.name}",
                differing={"documents": (stored, self._num_added)},
                remedy=SAME_AGAIN,
            )

    def abandon(self) -> None:
        """Remove the temporaries of the open shard."""
        if self._open is not None:
            self._open.abandon()

    def _shard(self) -> ShardWriter:
        if self._open is None:
            self._open = ShardWriter(
                self._folder,
                shard_name(len(self.entries)),
                facts=self._facts,
                filesystem=self._filesystem if self._is_new else NOWHERE,
                hasher=self._hasher,
            )
        return self._open

    @property
    def _next(self) -> int:
        """The number of the document that is added next."""
        return self._num_taken + self._num_added

    @property
    def _is_new(self) -> bool:
        return len(self.entries) >= len(self._finished)

    def _close(self, *, continues: bool) -> None:
        number = len(self.entries)
        record = self._shard().finish(split=self.name, number=number, continues=continues)
        self._open = None
        entry = record.entry(f"{self._folder.name}/{shard_name(number)}")
        if not self._is_new and entry != self._finished[number]:
            raise MismatchError(
                "the documents added are not those that the unfinished build was begun with",
                where=self._folder / shard_name(number),
                differing=differing_fields(self._finished[number].as_json(), entry.as_json()),
                remedy=SAME_AGAIN,
            )
        self.entries.append(entry)

    def _located(
        self, error: OutOfVocabularyError, documents: DocumentBatch
    ) -> OutOfVocabularyError:
        """Tell the error in terms of the document: the id is found again in what was given."""
        wrong = (documents.ids < 0) | (documents.ids >= error.limit)
        position = int(np.argmax(wrong))
        number = int(np.searchsorted(documents.offsets, position, side="right")) - 1
        origin = documents.provenance[number] if documents.provenance else None
        place = f"split {self.name}, document {self._next + number:,}"
        return error.located(
            f"{place} ({origin})" if origin else place,
            position=position - int(documents.offsets[number]),
        )
