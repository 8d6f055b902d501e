"""Documents in memory as a split, so that the rows of a stream are those of a store."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tokenreel.store.arrays import ArrayFile
from tokenreel.store.documents import Offsets
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.split import Split

NOWHERE = Path("(stream)")


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryShard(Shard):
    """A shard whose tokens lie in an array."""

    ids: np.ndarray

    @cached_property
    def tokens(self) -> np.ndarray:
        """All tokens."""
        return self.ids


def memory_split(ids: np.ndarray, offsets: np.ndarray) -> Split:
    """Return documents that lie end to end as a split of one shard.

    >>> memory_split(np.array([5, 6, 7]), np.array([0, 2, 3])).document(1).tokens.tolist()
    [7]
    """
    shard = MemoryShard(
        name="stream",
        token_file=ArrayFile(path=NOWHERE, dtype=ids.dtype, count=len(ids)),
        index_file=IndexFile(path=NOWHERE, count=len(offsets) - 1, load=lambda: Offsets(offsets)),
        ids=ids,
    )
    return Split("stream", [shard])
