"""Every window of T + 1 tokens inside a shard, whatever token it begins with.

Row i of a shard is its tokens i to i + T. Rows overlap, so they make no epoch: they are
what contract 002 draws from, with replacement, each equally likely. Closed form, no
index; a shard of T tokens or fewer has no row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.slices import one_piece_each
from tokenreel.store.split import Split


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlidingWindows:
    """The rows of a split, one for every token a window of `seq_len` inputs can begin with.

    row_starts: the row each shard begins with, and the end: int64 [shards + 1].
    """

    split: Split
    seq_len: int
    row_starts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        if self.seq_len < 1:
            raise ConfigError(
                "a window of no tokens", where="T", expected=">= 1", actual=self.seq_len
            )
        counts = np.maximum(np.diff(self.split.token_starts) - self.seq_len, 0)
        object.__setattr__(self, "row_starts", np.concatenate(([0], np.cumsum(counts))))
        if self.num_rows == 0:
            raise ConfigError(
                f"no shard has a window of T + 1 = {self.seq_len + 1:,} tokens",
                where=self.split.shards[0].token_file.path.parent,
                actual=f"{int(np.diff(self.split.token_starts).max()):,} in the longest",
                remedy="choose a smaller T, or build the cache with larger shards",
            )

    @property
    def num_rows(self) -> int:
        """How many windows there are."""
        return int(self.row_starts[-1])

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers, int64 [n]: one each."""
        shard = np.searchsorted(self.row_starts, rows, side="right") - 1
        return Pieces(
            shard=shard,
            start=rows - self.row_starts[shard],
            **one_piece_each(len(rows), self.seq_len + 1),
        )
