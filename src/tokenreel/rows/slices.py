"""Equal slices of every shard: no slice leaves its shard, what is left at its end is unused.

Row i of a shard is its tokens i·S to i·S + S. Unlike windows, slices share no token and
so lose the transition from one to the next; they are what contract 003 trains on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slices:
    """The rows of a split as slices of `num_slots` tokens: S - 1 inputs and their labels.

    row_starts: the row each shard begins with, and the end: int64 [shards + 1].
    """

    split: Split
    num_slots: int
    row_starts: np.ndarray = field(init=False)
    _row_stops: np.ndarray = field(init=False)
    _first_tokens: np.ndarray = field(init=False)  # where row 0 would be if a shard had it

    def __post_init__(self) -> None:
        if self.num_slots < 2:
            raise ConfigError(
                "a slice needs an input and a label", expected=">= 2 tokens", actual=self.num_slots
            )
        counts = np.diff(self.split.token_starts) // self.num_slots
        starts = np.concatenate(([0], np.cumsum(counts)))
        object.__setattr__(self, "row_starts", starts)
        object.__setattr__(self, "_row_stops", starts[1:].astype(np.uint64))
        object.__setattr__(self, "_first_tokens", starts[:-1] * -self.num_slots)
        if self.num_rows == 0:
            raise ConfigError(
                f"no shard has {self.num_slots:,} tokens, so there are no rows",
                where=self.split.shards[0].token_file.path.parent,
                actual=f"{int(np.diff(self.split.token_starts).max()):,} in the longest",
                remedy="choose a smaller seq_len",
            )

    @property
    def num_rows(self) -> int:
        """How many slices there are."""
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
        start += numbers * self.num_slots
        same = one_piece_each(len(numbers), self.num_slots)
        return Pieces(shard=shard, start=start, **same)


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
