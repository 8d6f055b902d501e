"""Windows of equal length inside each shard: none leaves its shard, what is over is unused.

Row i of a shard begins `stride` · i tokens into it. With a stride of S slots windows are
slices that share no token, and lose the transition from one to the next: what contract 003
trains on. With a stride of 1 they are all windows there are, which overlap and make no
epoch: what contract 002 draws from. Closed form, no index.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split


class ShardWindows:
    """The rows of a split as windows of `num_slots` tokens: S - 1 inputs and their labels.

    row_starts: the row each shard begins with, and the end: int64 [shards + 1].
    """

    def __init__(self, split: Split, num_slots: int, *, stride: int) -> None:
        if num_slots < 2:
            raise ConfigError(
                "a slice needs an input and a label", expected=">= 2 tokens", actual=num_slots
            )
        self.split, self.num_slots, self._stride = split, num_slots, stride
        counts = np.maximum((np.diff(split.token_starts) - num_slots) // stride + 1, 0)
        self.row_starts = np.concatenate(([0], np.cumsum(counts)))
        self._row_stops = self.row_starts[1:].astype(np.uint64)
        # Where row 0 would begin in each shard if the shard had it.
        self._first_tokens = self.row_starts[:-1] * -stride

    @property
    def num_rows(self) -> int:
        """How many windows there are; 0 where every shard is shorter than one."""
        return int(self.row_starts[-1])

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers, one each."""
        numbers = np.ascontiguousarray(rows, np.int64)
        # Read as unsigned, a negative number is larger than any row: behind the last shard.
        shard = self._row_stops.searchsorted(numbers.view(np.uint64), side="right")
        try:
            start = self._first_tokens[shard]
        except IndexError:
            raise IndexError(f"no such row among {self.num_rows:,}") from None
        start += numbers * self._stride
        return Pieces(shard=shard, start=start, **one_piece_each(len(numbers), self.num_slots))


@lru_cache(maxsize=8)
def one_piece_each(count: int, num_slots: int) -> dict[str, np.ndarray]:
    """Return what does not depend on where rows of one piece lie: batches of one size share it."""
    columns = {
        "row_offsets": np.arange(count + 1),
        "length": np.full(count, num_slots),
        "document": np.full(count, -1),
        "first": np.ones(count, bool),
    }
    for column in columns.values():
        column.flags.writeable = False
    return columns
