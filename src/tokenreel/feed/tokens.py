"""Where the tokens of pieces are: in mapped shards, or in copies made for this batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split

FEW_SHARDS = 32


def tokens_of(split: Split, pieces: Pieces) -> tuple[tuple[np.ndarray, ...], np.ndarray, Pieces]:
    """Return arrays of tokens, which of them each piece is in, and the pieces within them.

    A split opened with mode pread is read piece by piece: some microseconds each, but a
    shard that has been truncated raises DamageError, where a mapping would die by SIGBUS.
    """
    if split.shards[0].mode == "pread":
        ranges = zip(
            pieces.shard.tolist(), pieces.start.tolist(), pieces.length.tolist(), strict=True
        )
        copies = tuple(split.shards[s].read(start, start + length) for s, start, length in ranges)
        return copies, np.arange(len(copies)), replace(pieces, start=np.zeros_like(pieces.start))
    shards, buffer = np.arange(len(split.shards)), pieces.shard
    if len(shards) > FEW_SHARDS:  # open no more than these rows need
        shards, buffer = np.unique(pieces.shard, return_inverse=True)
    return tuple(split.shards[shard].tokens for shard in shards), buffer, pieces
