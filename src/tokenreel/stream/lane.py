"""One lane of a stream: documents in, rows out, from any mark on.

The state is the mark (a place in the source, and what to pass over there) and the counts:
KBs whatever the buffers hold, because what was waiting in them is read and encoded again: a
document (sequential) or a block (bin), and with shuffling the text of one shuffle block.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from itertools import count
from typing import Any, Protocol

import numpy as np

from tokenreel.errors import InputError
from tokenreel.feed.prefetch import ahead
from tokenreel.stream.arrivals import Arrivals, grouped
from tokenreel.stream.cache import Cache
from tokenreel.stream.encoder import Chunk, Encoder
from tokenreel.stream.ledger import COLUMN, as_dropped, from_named, named, nothing_counted
from tokenreel.stream.place import Place
from tokenreel.stream.rows import Rows, sift

FRUITLESS_EPOCHS = 4  # more than the chunks that may be encoded ahead


class Packer(Protocol):
    """Turn chunks into rows; `max_docs` and `max_characters` say when a chunk is full."""

    max_docs: int
    max_characters: int

    def pack(self, chunks: Iterator[Chunk], *, place: Place, taken: int) -> Iterator[Rows]:
        """Yield rows of chunks read from `place`, after what was `taken` there."""


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
        self._start(Place(), 0, nothing_counted())

    def _start(self, place: Place, taken: int, counts: np.ndarray) -> None:
        self.place, self.taken, self.counts = place, taken, counts
        self._waiting: list[Rows] = []
        self._source = self._rows(place, taken)
        self._epoch = place.epoch

    def take(self, num_rows: int) -> list[dict[str, np.ndarray]]:
        """Return arrays of the next rows, so many together or, at the end, fewer."""
        parts: list[dict[str, np.ndarray]] = []
        while num_rows and (rows := self._next()) is not None:
            taken = min(num_rows, len(rows))
            parts.append({name: array[:taken] for name, array in rows.arrays.items()})
            self.counts = self.counts + rows.counts[:taken].sum(axis=0)
            self.place, self.taken = rows.marks[taken - 1]
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

    def _rows(self, place: Place, taken: int) -> Generator[Rows, None, None]:
        """Yield rows with a trained target; at the end count what no row carried."""
        carried, fruitful = nothing_counted(), place.epoch
        if self._cache is not None:
            self._cache.begin(place, self._arrivals, self._encoder)
        with closing(self._encoded(place)) as chunks:
            for rows in self._packer.pack(chunks, place=place, taken=taken):
                kept = sift(rows, carried)
                carried = kept.rest
                if len(kept):
                    fruitful = kept.marks[-1][0].epoch
                    yield kept
                elif carried[COLUMN["dropped"]] and self._epoch - fruitful >= FRUITLESS_EPOCHS:
                    raise _fruitless(f"{carried[COLUMN['documents']]:,} documents without")
        self.counts = self.counts + carried

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
        for epoch, documents in self._arrivals.epochs(place):
            self._epoch = epoch
            cache = self._cache if epoch == 0 else None
            is_empty = epoch > place.epoch or not place.number
            for group in grouped(documents, self._packer.max_docs, self._packer.max_characters):
                chunk = self._encoder.encode(group)
                is_empty = is_empty and not len(chunk.documents.ids)
                if cache is not None:
                    cache.add(chunk)
                yield chunk
            if is_empty:
                raise _fruitless("an epoch without a token")
            if cache is not None:
                cache.commit()

    def state(self) -> dict[str, Any]:
        """Return where the lane is, ready for JSON."""
        state = {"place": self.place.as_dict(), "taken": self.taken, "counts": named(self.counts)}
        if self._cache is not None:
            state["cache"] = self._cache.state()
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to where a state says; nothing is read until the next row is asked for."""
        self.close()
        if self._cache is not None:
            self._cache.restore(state.get("cache"))
        place = Place.from_dict(state["place"])
        self._start(place, int(state["taken"]), from_named(state["counts"]))

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
