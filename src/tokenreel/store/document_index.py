"""Where documents start and stop in a shard, whatever the index on disk looks like.

Three kinds of index, one question: `bounds(numbers)`. Nothing is copied into
memory; an index of 10⁹ documents is asked in place. `check` reads all of it, in
pieces, before the first document is sliced.

    Offsets    start of each document, and the end        native, Megatron, EOS scan
    Starts     start of each document, the end inferred   token caches
    Pairs      start and length of each document          episodes
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from tokenreel.errors import DamageError

CHECK_DOCUMENTS = 1 << 20


class DocumentIndex(Protocol):
    """Starts and stops of documents, as token numbers within their shard."""

    def __len__(self) -> int:
        """How many documents there are."""

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return starts and stops (int64) of the documents with these numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Offsets:
    """N + 1 offsets of 8 bytes: document i is offsets[i] to offsets[i + 1]."""

    offsets: np.ndarray

    def __len__(self) -> int:
        return max(len(self.offsets) - 1, 0)

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return starts and stops."""
        return self.offsets[numbers].astype(np.int64), self.offsets[numbers + 1].astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """N offsets without an end: the last document ends where the tokens do."""

    starts: np.ndarray
    end: int

    def __len__(self) -> int:
        return len(self.starts)

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return starts and stops."""
        last = len(self.starts) - 1
        following = self.starts[np.minimum(numbers + 1, last)].astype(np.int64)
        stops = np.where(numbers == last, self.end, following)
        return self.starts[numbers].astype(np.int64), stops


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """N pairs (start, length), uint64 [N, 2]; there may be gaps between documents."""

    pairs: np.ndarray

    def __len__(self) -> int:
        return len(self.pairs)

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return starts and stops; a length too large for int64 gives a stop before the start."""
        starts = self.pairs[numbers, 0].astype(np.int64)
        lengths = self.pairs[numbers, 1].astype(np.int64)
        stops = starts + lengths
        return starts, np.where(lengths < 0, -1, stops)


def check_index(index: DocumentIndex, *, num_tokens: int, where: Path) -> None:
    """Raise DamageError for the first document out of order, overlapping or leaving the shard."""
    previous_stop = 0
    for first in range(0, len(index), CHECK_DOCUMENTS):
        numbers = np.arange(first, min(first + CHECK_DOCUMENTS, len(index)))
        starts, stops = index.bounds(numbers)
        before = np.concatenate(([previous_stop], stops[:-1]))
        wrong = (starts < before) | (stops < starts) | (stops > num_tokens)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise DamageError(
                f"document {first + at:,} of the index is not in order or not inside the shard",
                where=where,
                expected=f"{int(before[at]):,} <= start <= stop <= {num_tokens:,}",
                actual=f"start {int(starts[at]):,}, stop {int(stops[at]):,}",
                remedy="restore the index or build the store again",
            )
        previous_stop = int(stops[-1])


def find_documents(index: DocumentIndex, positions: np.ndarray) -> np.ndarray:
    """Return the number of the document that holds each token; -1 where a gap does.

    >>> index = Offsets(np.array([0, 3, 3, 5]))
    >>> find_documents(index, np.array([0, 2, 3, 4])).tolist()
    [0, 0, 2, 2]
    """
    if isinstance(index, Offsets):  # the common case, an order of magnitude faster
        found = np.searchsorted(index.offsets, positions.astype(index.offsets.dtype), side="right")
        return np.where(found <= len(index), found - 1, -1)
    low = np.zeros(len(positions), np.int64)
    high = np.full(len(positions), len(index), np.int64)
    while (high - low > 1).any():
        middle = np.where(high - low > 1, (low + high) // 2, low)
        starts, _ = index.bounds(middle)
        right = starts <= positions
        low = np.where(right, middle, low)
        high = np.where(right, high, np.where(middle > low, middle, high))
    starts, stops = index.bounds(low)
    return np.where((starts <= positions) & (positions < stops), low, -1)
