"""Rows on their way into batches: arrays, what each adds to the account, and where it ends.

Gathering, shifting and masking are the feed's; here labels of the end token may be ignored
besides, and the borders of documents trained, where that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenreel.feed.gather import IGNORED, Gathered, empty_rows, gather
from tokenreel.rows.pieces import Pieces
from tokenreel.stream.chunk import Chunk
from tokenreel.stream.ledger import COLUMN, as_dropped, counts_of, nothing_counted

FIELDS = ("input_ids", "labels", "segment_ids", "position_ids")
Mark = tuple[Chunk, int]  # what a packer holds, and how much of it was taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a lane: arrays int32 [n, T] by name, counts int64 [n, names].

    `marks`: for each row what the packer holds after it, and how many rows (bin) or tokens
    (sequential) of that were taken. `rest`: counts of what comes after the last row.
    """

    arrays: dict[str, np.ndarray]
    counts: np.ndarray
    marks: Sequence[Mark]
    rest: np.ndarray

    def __len__(self) -> int:
        return len(self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """How rows are filled; `ignored_id` is a token that is no target."""

    seq_len: int
    pad_id: int
    ignored_id: int | None = None
    mask_borders: bool = True

    def fill(self, ids: np.ndarray, pieces: Pieces) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the arrays of rows that pieces of `ids` make, and their targets, int64 [n]."""
        rows = self._gathered(ids, pieces)
        labels = rows.labels
        if not self.mask_borders:
            whole = np.zeros_like(pieces.first)
            whole[pieces.row_offsets[:-1]] = True
            labels = self._gathered(ids, replace(pieces, first=whole)).labels
        if self.ignored_id is not None:
            labels[labels == self.ignored_id] = IGNORED
        arrays = {name: getattr(rows, name).astype(np.int32, copy=False) for name in FIELDS}
        arrays["labels"] = labels.astype(np.int32)
        return arrays, np.count_nonzero(labels != IGNORED, axis=1)

    def _gathered(self, ids: np.ndarray, pieces: Pieces) -> Gathered:
        rows = empty_rows(pieces.num_rows, self.seq_len)
        gather(
            (np.ascontiguousarray(ids),),
            pieces,
            rows,
            out_row=np.arange(pieces.num_rows),
            buffer=pieces.shard,
            spans=None,
            pad_id=self.pad_id,
        )
        return rows

    def padding(self, num_rows: int) -> dict[str, np.ndarray]:
        """Return rows that are padding throughout."""
        arrays = {name: np.zeros((num_rows, self.seq_len), np.int32) for name in FIELDS}
        arrays["input_ids"][:] = self.pad_id
        arrays["labels"][:] = IGNORED
        return arrays

    def no_rows(self) -> Rows:
        """Return rows of which there are none."""
        arrays = self.padding(0)
        return Rows(arrays=arrays, counts=counts_of(0), marks=[], rest=nothing_counted())


def sift(rows: Rows, carried: np.ndarray) -> Rows:
    """Return the rows that have a trained target; what else is counted goes to the next of them.

    `carried`: counts from before these rows. What no kept row is left to carry is in `rest`.
    """
    untrained = rows.counts[:, COLUMN["trained"]] == 0
    counts = rows.counts
    if untrained.any():
        counts = counts.copy()
        counts[untrained] = as_dropped(counts[untrained])
        counts[untrained, COLUMN["untrained_rows"]] = 1
    kept = np.flatnonzero(~untrained)
    totals = np.cumsum(np.vstack((carried[None], counts)), axis=0)
    ends = np.vstack((np.zeros_like(totals[:1]), totals[kept + 1]))
    return Rows(
        arrays=rows.arrays
        if len(kept) == len(rows)
        else {name: array[kept] for name, array in rows.arrays.items()},
        counts=np.diff(ends, axis=0),
        marks=[rows.marks[row] for row in kept.tolist()],
        rest=totals[-1] - ends[-1] + rows.rest,
    )
