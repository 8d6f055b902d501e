"""Where tokens and their weights are: in mapped shards, or in copies made for this batch."""

from __future__ import annotations

from collections.abc import Iterator
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
        copies = tuple(split.shards[s].read(start, stop) for s, start, stop in _ranges(pieces))
        return copies, np.arange(len(copies)), replace(pieces, start=np.zeros_like(pieces.start))
    shards, buffer = np.arange(len(split.shards)), pieces.shard
    if len(shards) > FEW_SHARDS:  # open no more than these rows need
        shards, buffer = np.unique(pieces.shard, return_inverse=True)
    return tuple(split.shards[shard].tokens for shard in shards), buffer, pieces


def weights_of(split: Split, pieces: Pieces) -> tuple[np.ndarray, ...]:
    """Return the stored weights of the arrays that tokens_of returns; all shards have some."""
    if split.shards[0].mode == "pread":
        found = [split.shards[s].read_weights(start, stop) for s, start, stop in _ranges(pieces)]
    elif len(split.shards) > FEW_SHARDS:
        found = [split.shards[shard].weights for shard in np.unique(pieces.shard)]
    else:
        found = [shard.weights for shard in split.shards]
    return tuple(weights for weights in found if weights is not None)


def _ranges(pieces: Pieces) -> Iterator[tuple[int, int, int]]:
    stops = (pieces.start + pieces.length).tolist()
    return zip(pieces.shard.tolist(), pieces.start.tolist(), stops, strict=True)
