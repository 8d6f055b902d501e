"""One lane of a stream: documents in, rows out, from any state on.

The state is what the packer holds, how much of it was taken, the place to read on from, and
the counts. Nothing that the packer holds is read or encoded again; with shuffling the text of
one shuffle block is read again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import count
from typing import Protocol

import numpy as np

from tokenreel.errors import InputError
from tokenreel.feed.prefetch import ahead
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.stream.arrivals import Arrivals, Arrived
from tokenreel.stream.cache import Cache
from tokenreel.stream.chunk import Chunk, no_documents
from tokenreel.stream.encoder import Encoder
from tokenreel.stream.ledger import COLUMN, as_dropped, nothing_counted
from tokenreel.stream.place import Place
from tokenreel.stream.rows import Rows, sift
from tokenreel.stream.state import LaneState

FRUITLESS_EPOCHS = 4  # more than the chunks that may be encoded ahead


class Packer(Protocol):
    """Say which documents are encoded together, and turn them into rows."""

    def groups(self, epochs: Iterable[Iterable[Arrived]]) -> Iterator[list[Arrived]]:
        """Yield the documents of one epoch after the other in groups."""

    def pack(self, chunks: Iterator[Chunk], *, held: Chunk, taken: int) -> Iterator[Rows]:
        """Yield rows of what is held, after what was `taken` of it, and of the chunks behind it."""


class Lane:
    """Rows of a lane; `counts` is the account of those that were taken.

    `chunks_ahead` chunks are encoded by a thread while the rows of the last one are taken:
    a packer takes its documents in gulps, a trainer should not feel them.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        encoder: Encoder,
        packer: Packer,
        *,
        cache: Cache | None,
        chunks_ahead: int,
    ) -> None:
        self._chunks_ahead = chunks_ahead
        self._arrivals = arrivals
        self._encoder = encoder
        self._packer = packer
        self._cache = cache
        self._start(no_documents(Place()), 0, nothing_counted())

    def _start(self, held: Chunk, taken: int, counts: np.ndarray) -> None:
        self._held, self._taken, self.counts = held, taken, counts
        self._waiting: list[Rows] = []
        self._source = self._rows(held, taken)
        self._reached = held.after

    def take(self, num_rows: int) -> list[dict[str, np.ndarray]]:
        """Return arrays of the next rows, so many together or, at the end, fewer."""
        parts: list[dict[str, np.ndarray]] = []
        while num_rows and (rows := self._next()) is not None:
            taken = min(num_rows, len(rows))
            parts.append({name: array[:taken] for name, array in rows.arrays.items()})
            self.counts = self.counts + rows.counts[:taken].sum(axis=0)
            self._held, self._taken = rows.marks[taken - 1]
            if taken < len(rows):
                self._waiting.append(_after(rows, taken))
            num_rows -= taken
        return parts

    def add(self, counts: np.ndarray) -> None:
        """Add to the account."""
        self.counts = self.counts + counts

    def drop_since(self, counts: np.ndarray) -> None:
        """Count as dropped what was taken since the account stood like this."""
        self.counts = counts + as_dropped(self.counts - counts)

    def _next(self) -> Rows | None:
        return self._waiting.pop() if self._waiting else next(self._source, None)

    def _rows(self, held: Chunk, taken: int) -> Generator[Rows, None, None]:
        """Yield rows with a trained target; at the end count what no row carried."""
        place = held.after
        carried, fruitful = nothing_counted(), place.epoch
        if self._cache is not None:
            self._cache.begin(place, self._arrivals, self._encoder)
        with closing(self._encoded(place)) as chunks:
            for rows in self._packer.pack(chunks, held=held, taken=taken):
                kept = sift(rows, carried)
                carried = kept.rest
                if len(kept):
                    fruitful = kept.marks[-1][0].after.epoch
                    yield kept
                elif carried[COLUMN["dropped"]]:
                    self._check_patience(fruitful, carried)
        # Rows that nobody was given are counted now, and must not be met again.
        self.counts = self.counts + carried
        self._held, self._taken = no_documents(self._reached), 0

    def _check_patience(self, fruitful: int, carried: np.ndarray) -> None:
        if self._reached.epoch - fruitful >= FRUITLESS_EPOCHS:
            raise _fruitless(f"{carried[COLUMN['documents']]:,} documents without")

    def _encoded(self, place: Place) -> Generator[Chunk, None, None]:
        chunks = self._chunks(place)
        with closing(
            ahead(lambda _: next(chunks, None), count(), depth=self._chunks_ahead)
        ) as made:
            for chunk in made:
                if chunk is None:
                    return
                yield chunk

    def _chunks(self, place: Place) -> Iterator[Chunk]:
        # The first epoch that is read from its start, and of which no token has been seen.
        silent = place.epoch + (place.number > 0)
        for group in self._packer.groups(
            documents for _, documents in self._arrivals.epochs(place)
        ):
            chunk = self._encoder.encode(group)
            self._reached = chunk.after
            if len(chunk.ids):
                silent = chunk.after.epoch + 1
            elif silent < chunk.after.epoch:
                break
            self._keep(group, chunk.documents)
            yield chunk
        if silent <= self._reached.epoch:
            raise _fruitless("an epoch without a token")
        if self._cache is not None:
            self._cache.commit()

    def _keep(self, group: Sequence[Arrived], documents: DocumentBatch) -> None:
        """Hand the cache what is of the first epoch, and commit it where that is over."""
        if self._cache is None:
            return
        first = [document for document in group if not document.place.epoch]
        if first:
            part = documents.part(0, len(first))
            self._cache.add(part, first=first[0].place.number, after=first[-1].after)
        if len(first) < len(group):
            self._cache.commit()

    def state(self) -> LaneState:
        """Return where the lane is."""
        return LaneState(
            held=self._held,
            taken=self._taken,
            counts=self.counts,
            safe=None if self._cache is None else self._cache.safe,
        )

    def restore(self, state: LaneState) -> None:
        """Go to where a state says; nothing is read until the next row is asked for."""
        self.close()
        if self._cache is not None:
            self._cache.restore(state.safe)
        self._start(state.held, state.taken, state.counts)

    def close(self) -> None:
        """Let go of the source and of the store that is being written."""
        self._source.close()
        if self._cache is not None:
            self._cache.close()


def _after(rows: Rows, taken: int) -> Rows:
    return Rows(
        arrays={name: array[taken:] for name, array in rows.arrays.items()},
        counts=rows.counts[taken:],
        marks=rows.marks[taken:],
        rest=rows.rest,
    )


def _fruitless(actual: str) -> InputError:
    return InputError(
        "nothing of the stream can be trained on",
        expected="a document of >= 2 tokens, with a target that is not masked",
        actual=actual,
        remedy="look at the documents, at add_eos and at train_on_eos",
    )
