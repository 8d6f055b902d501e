"""Write-through: the documents of the first pass, as they stream, into a store.

Documents are written in the order of the stream, as encoded and cut for it; when the pass
is over the store is committed, and a Feed reads it like any other. Killed and resumed from
a state, finished shards are kept; what was written behind them, at most a shard, is read
and encoded again before the stream goes on. A store of the same stream that is finished is
left as it is; another one, or one being written by someone else, is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from tokenreel.canonical import digest
from tokenreel.errors import MismatchError
from tokenreel.layouts.open_store import open_store
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.manifest import MANIFEST_NAME
from tokenreel.store.writer import StoreWriter
from tokenreel.stream.arrivals import Arrivals, grouped
from tokenreel.stream.encoder import Encoder
from tokenreel.stream.place import Place
from tokenreel.stream.settings import CacheSettings
from tokenreel.text.tokenizers import Tokenizer

SPLIT = "train"
CATCH_UP_DOCS = 1000
CATCH_UP_CHARACTERS = 1 << 20


class Cache:
    """A store that grows with the stream; `facts` are what its documents depend on."""

    def __init__(
        self, settings: CacheSettings, tokenizer: Tokenizer, facts: Mapping[str, Any]
    ) -> None:
        self.path = Path(settings.cache_to or "")
        self._shard_bytes = settings.cache_shard_bytes
        self._tokenizer = tokenizer
        self._facts = {"stream": digest(facts), **facts}
        self._writer: StoreWriter | None = None
        self._next = 0
        # Places to read from; the first is the last of which all before it is safe.
        self._marks: deque[Place] = deque([Place()])

    def begin(self, place: Place, arrivals: Arrivals, encoder: Encoder) -> None:
        """Make ready for the documents from `place` on; those that got lost are written again."""
        if place.epoch or self._is_finished():
            return
        self._writer = self._open()
        self._next = self._writer.resume(SPLIT)
        mark = self._marks[0]
        if self._next < mark.number:
            raise MismatchError(
                "the unfinished store is not the one that this state was saved with",
                where=self.path,
                differing={"documents": (f">= {mark.number:,}", self._next)},
                remedy="restore the folder, or start the stream anew",
            )
        if self._next >= place.number:
            self._marks = deque([place])
            return
        _, documents = next(arrivals.epochs(mark))
        lost = (
            document
            for document in takewhile(lambda item: item.place.number < place.number, documents)
            if document.place.number >= self._next
        )
        for group in grouped(lost, max_docs=CATCH_UP_DOCS, max_characters=CATCH_UP_CHARACTERS):
            encoded = encoder.encode(group).documents
            self.add(encoded, first=group[0].place.number, after=group[-1].after)

    def _is_finished(self) -> bool:
        if not (self.path / MANIFEST_NAME).exists():
            return False
        manifest = open_store(self.path).manifest
        return manifest is not None and manifest.facts.build == self._facts

    def _open(self) -> StoreWriter:
        tokenizer = self._tokenizer
        return StoreWriter(
            self.path,
            vocab_size=tokenizer.vocab_size,
            shard_bytes=self._shard_bytes,
            provenance=True,
            tokenizer={
                "fingerprint": tokenizer.fingerprint,
                "vocab_size": tokenizer.vocab_size,
                "control_ids": dict(tokenizer.control_ids),
            },
            build=self._facts,
        )

    def add(self, documents: DocumentBatch, *, first: int, after: Place) -> None:
        """Write documents that are not there yet; `first` is the number of the first."""
        if self._writer is None:
            return
        count = len(documents)
        known = min(max(self._next - first, 0), count)
        if known < count:
            self._writer.add_batch(documents.part(known, count), split=SPLIT)
            self._next = first + count
        self._marks.append(after)
        safe = self._writer.num_safe(SPLIT)
        while len(self._marks) > 1 and self._marks[1].number <= safe:
            self._marks.popleft()

    def commit(self) -> None:
        """Finish the store: the first pass is over."""
        if self._writer is not None:
            self._writer.commit()
            self._writer = None

    @property
    def safe(self) -> Place:
        """The place from which on documents may have to be written again."""
        return self._marks[0]

    def restore(self, safe: Place | None) -> None:
        """Go to where a state says; `begin` does the rest."""
        self._marks = deque([safe or Place()])

    def close(self) -> None:
        """Stop writing; finished shards stay for the next time."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
