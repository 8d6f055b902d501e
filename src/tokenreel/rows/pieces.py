"""Rows as pieces of shards: what the feed gathers.

A row is at most T + 1 tokens, its pieces end to end: inputs are its first T, labels its last T.

    pieces    ├── document 7 ──┤├─ document 2 ─┤├ padding ┤
    segment          1                 2             0
    input     a  b  c  d  e  f  p  q  r  s  t  -  -  -
    label     b  c  d  e  f  ·  q  r  s  t  ·  -  -  -  -      · = -100: no target crosses segments
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Pieces of several rows: row r has pieces row_offsets[r] to row_offsets[r + 1].

    row_offsets: int64 [rows + 1]. All others [pieces]: shard int64; start int64, the
    first token within the shard; length int64; document int64, its number in the split
    (-1 where documents are not known); first bool, whether a segment begins here. lead: int64
    [rows], the empty slots in front of each row's first token; None: rows are padded behind.
    """

    row_offsets: np.ndarray
    shard: np.ndarray
    start: np.ndarray
    length: np.ndarray
    document: np.ndarray
    first: np.ndarray
    lead: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """How many rows these are."""
        return len(self.row_offsets) - 1

    @property
    def row(self) -> np.ndarray:
        """The row each piece belongs to, int64 [pieces]."""
        return np.repeat(np.arange(self.num_rows), np.diff(self.row_offsets))

    @property
    def only_document(self) -> np.ndarray:
        """The document of each row, int64 [rows]; -1 where it shows several, or they are unknown.

        No row may be empty.
        """
        # A row shows one document if the least and the greatest number of its pieces are the same.
        least = np.minimum.reduceat(self.document, self.row_offsets[:-1])
        most = np.maximum.reduceat(self.document, self.row_offsets[:-1])
        return np.where(least == most, least, -1)


def ragged_index(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return starts[0], starts[0] + 1, … for counts[0] numbers, then those of starts[1], …

    >>> ragged_index(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(
        int(ends[-1]) if len(ends) else 0
    )
