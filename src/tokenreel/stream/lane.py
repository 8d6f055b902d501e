"""One lane of a stream: documents in, rows out, from any state on.

The state is what the packer holds, how much of it was taken, the bookmark to read on from, and
the counts. Nothing that the packer holds is read or encoded again; with shuffling the text of
one shuffle block is read again.

Write-through: the documents of the first pass go into a store, as they stream, in the order of
the stream, as encoded and cut for it. When the pass is over the store is committed, and a Feed
reads it like any other. Killed and resumed from a state, finished shards are kept; what was
written behind them, at most a shard, is read and encoded again before the stream goes on. A
store of the same stream that is finished is left as it is; another one, or one being written by
someone else, is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tokenreel.canonical import digest
from tokenreel.errors import InputError, MismatchError
from tokenreel.feed.prefetch import make_ahead
from tokenreel.layouts.open_store import open_store
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.manifest import MANIFEST_NAME
from tokenreel.store.writer import StoreWriter
from tokenreel.stream.arrivals import Arrivals, Arrived, Bookmark, grouped
from tokenreel.stream.encoded_documents import EncodedDocuments, Encoder, no_documents
from tokenreel.stream.stream_settings import CacheSettings
from tokenreel.stream.stream_state import COLUMN, LaneState, as_dropped, nothing_counted
from tokenreel.text.tokenizers import Tokenizer

ARRAYS = ("input_ids", "labels", "segment_ids", "position_ids")
MAX_EPOCHS_WITHOUT_ROWS = 4  # more than the groups that may be encoded ahead
SPLIT = "train"
CATCH_UP_DOCS = 1000
CATCH_UP_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a lane: arrays int32 [n, T] by name, counts int64 [n, names].

    `held`: for each row what the packer holds after it, and how many rows (bin) or tokens
    (sequential) of that were taken. `rest`: counts of what comes after the last row.
    """

    arrays: dict[str, np.ndarray]
    counts: np.ndarray
    held: Sequence[tuple[EncodedDocuments, int]]
    rest: np.ndarray

    def __len__(self) -> int:
        return len(self.held)

    def after(self, num_rows: int) -> Rows:
        """Return the rows after the first ones."""
        return Rows(
            arrays={name: array[num_rows:] for name, array in self.arrays.items()},
            counts=self.counts[num_rows:],
            held=self.held[num_rows:],
            rest=self.rest,
        )

    def trained(self, carried: np.ndarray) -> Rows:
        """Return the rows that have a trained target; counts of the others go to the next of them.

        `carried`: counts from before these rows. What no row is left to carry is in `rest`.
        """
        is_untrained = self.counts[:, COLUMN["trained"]] == 0
        counts, arrays = self.counts, self.arrays
        kept = np.flatnonzero(~is_untrained)
        if len(kept) < len(self):
            counts = counts.copy()
            counts[is_untrained] = as_dropped(counts[is_untrained])
            counts[is_untrained, COLUMN["untrained_rows"]] = 1
            arrays = {name: array[kept] for name, array in arrays.items()}
        # Running totals after 0, 1, … rows, [n + 1, names]; a kept row gets all that was counted
        # since the kept row before it.
        totals = np.cumsum(np.vstack((carried[None], counts)), axis=0)
        ends = np.vstack((np.zeros_like(totals[:1]), totals[kept + 1]))
        return Rows(
            arrays=arrays,
            counts=np.diff(ends, axis=0),
            held=[self.held[row] for row in kept.tolist()],
            rest=totals[-1] - ends[-1] + self.rest,
        )


class Packer(Protocol):
    """Say which documents are encoded together, and turn them into rows."""

    def groups(self, epochs: Iterable[Iterable[Arrived]]) -> Iterator[list[Arrived]]:
        """Yield the documents of one epoch after the other in groups."""

    def pack(
        self, arriving: Iterator[EncodedDocuments], *, held: EncodedDocuments, taken: int
    ) -> Iterator[Rows]:
        """Yield rows of what is held, after what was `taken` of it, and of what arrives."""


class WriteThrough:
    """A store that grows with the stream; `facts` are what its documents depend on.

    `safe` is the bookmark from which on documents may have to be written again.
    """

    def __init__(
        self,
        settings: CacheSettings,
        tokenizer: Tokenizer,
        facts: Mapping[str, Any],
        *,
        safe: Bookmark | None,
    ) -> None:
        self.path = Path(settings.cache_to or "")
        self._shard_bytes = settings.cache_shard_bytes
        self._tokenizer = tokenizer
        self._facts = {"stream": digest(facts), **facts}
        self._writer: StoreWriter | None = None
        self._next = 0
        # Bookmarks to read from; the first is the last of which all before it is safe.
        self._bookmarks: deque[Bookmark] = deque([safe or Bookmark()])

    @property
    def safe(self) -> Bookmark:
        """The bookmark from which on documents may have to be written again."""
        return self._bookmarks[0]

    def begin(self, start: Bookmark, arrivals: Arrivals, encoder: Encoder) -> None:
        """Make ready for the documents from `start` on; those that got lost are written again."""
        if start.epoch or self._is_finished():
            return
        self._writer = self._open()
        self._next = self._writer.resume(SPLIT)
        if self._next < self.safe.number:
            raise MismatchError(
                "the unfinished store is not the one that this state was saved with",
                where=self.path,
                differing={"documents": (f">= {self.safe.number:,}", self._next)},
                remedy="restore the folder, or start the stream anew",
            )
        if self._next >= start.number:
            self._bookmarks = deque([start])
            return
        documents = next(arrivals.epochs(self.safe))
        lost = (
            document
            for document in takewhile(lambda item: item.before.number < start.number, documents)
            if document.before.number >= self._next
        )
        for group in grouped(lost, max_docs=CATCH_UP_DOCS, max_characters=CATCH_UP_CHARACTERS):
            self.keep(group, encoder.encode(group).documents)

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

    def keep(self, group: Sequence[Arrived], documents: DocumentBatch) -> None:
        """Write what is of the first epoch and not there yet; commit where that epoch is over."""
        if self._writer is None:
            return
        first_pass = [document for document in group if not document.before.epoch]
        if first_pass:
            start, stop = first_pass[0].before.number, first_pass[-1].after.number
            known = min(max(self._next, start), stop)
            if known < stop:
                part = documents.part(known - start, stop - start)
                self._writer.add_batch(part, split=SPLIT)
                self._next = stop
            self._bookmarks.append(first_pass[-1].after)
            num_safe = self._writer.num_safe(SPLIT)
            while len(self._bookmarks) > 1 and self._bookmarks[1].number <= num_safe:
                self._bookmarks.popleft()
        if len(first_pass) < len(group):
            self.commit()

    def commit(self) -> None:
        """Finish the store: the first pass is over."""
        if self._writer is not None:
            self._writer.commit()
            self._writer = None

    def close(self) -> None:
        """Stop writing; finished shards stay for the next time."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None


class Lane:
    """Rows of a lane from a state on; `state` is where it is after those that were taken.

    Nothing is read until the first row is asked for. `groups_ahead` groups of documents are
    encoded by a thread while the rows of the last one are taken: a packer takes its documents
    in gulps, a trainer should not feel them.
    """

    def __init__(
        self,
        state: LaneState,
        arrivals: Arrivals,
        encoder: Encoder,
        packer: Packer,
        *,
        store: WriteThrough | None,
        groups_ahead: int,
    ) -> None:
        self.state = replace(state, safe=None if store is None else store.safe)
        self._groups_ahead = groups_ahead
        self._arrivals = arrivals
        self._encoder = encoder
        self._packer = packer
        self._store = store
        self._reached = state.held.after
        self._waiting: Rows | None = None
        self._rows = self._make_rows()

    def take(self, num_rows: int) -> list[dict[str, np.ndarray]]:
        """Return arrays of the next rows, so many together or, at the end, fewer."""
        parts: list[dict[str, np.ndarray]] = []
        while num_rows and (rows := self._waiting or next(self._rows, None)) is not None:
            taken = min(num_rows, len(rows))
            parts.append({name: array[:taken] for name, array in rows.arrays.items()})
            self._move(*rows.held[taken - 1], rows.counts[:taken].sum(axis=0))
            self._waiting = rows.after(taken) if taken < len(rows) else None
            num_rows -= taken
        return parts

    def _move(self, held: EncodedDocuments, taken: int, counts: np.ndarray) -> None:
        self.state = LaneState(
            held=held,
            taken=taken,
            counts=self.state.counts + counts,
            safe=None if self._store is None else self._store.safe,
        )

    def count(self, counts: np.ndarray) -> None:
        """Add to the account."""
        self.state = replace(self.state, counts=self.state.counts + counts)

    def _make_rows(self) -> Generator[Rows, None, None]:
        """Yield rows with a trained target; at the end count what no row carried."""
        held, taken = self.state.held, self.state.taken
        carried, row_epoch = nothing_counted(), held.after.epoch
        if self._store is not None:
            self._store.begin(held.after, self._arrivals, self._encoder)
        documents = self._encoded(held.after)
        made = make_ahead(lambda _: next(documents, None), count(), depth=self._groups_ahead)
        with closing(made):
            arriving = iter(made.__next__, None)
            for rows in self._packer.pack(arriving, held=held, taken=taken):
                kept = rows.trained(carried)
                carried = kept.rest
                if len(kept):
                    row_epoch = kept.held[-1][0].after.epoch
                    yield kept
                elif carried[COLUMN["dropped"]]:
                    self._check_patience(row_epoch, carried)
        # Rows that nobody was given are counted now, and must not be met again.
        self._move(no_documents(self._reached), 0, carried)

    def _check_patience(self, row_epoch: int, carried: np.ndarray) -> None:
        if self._reached.epoch - row_epoch >= MAX_EPOCHS_WITHOUT_ROWS:
            raise _nothing_trained(f"{carried[COLUMN['documents']]:,} documents without")

    def _encoded(self, start: Bookmark) -> Iterator[EncodedDocuments]:
        """Yield the documents from a bookmark on, group by group, encoded and written through."""
        # The first epoch that is read from its start, and of which no token has been seen.
        tokenless_epoch = start.epoch + (start.number > 0)
        for group in self._packer.groups(self._arrivals.epochs(start)):
            encoded = self._encoder.encode(group)
            self._reached = encoded.after
            if len(encoded.ids):
                tokenless_epoch = encoded.after.epoch + 1
            elif tokenless_epoch < encoded.after.epoch:
                break
            if self._store is not None:
                self._store.keep(group, encoded.documents)
            yield encoded
        if tokenless_epoch <= self._reached.epoch:
            raise _nothing_trained("an epoch without a token")
        if self._store is not None:
            self._store.commit()

    def close(self) -> None:
        """Let go of the source and of the store that is being written."""
        self._rows.close()
        if self._store is not None:
            self._store.close()


def _nothing_trained(actual: str) -> InputError:
    return InputError(
        "nothing of the stream can be trained on",
        expected="a document of >= 2 tokens, with a target that is not masked",
        actual=actual,
        remedy="look at the documents, at add_eos and at train_on_eos",
    )
