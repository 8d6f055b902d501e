"""Ranges of a split's tokens as pieces of its shards."""

from __future__ import annotations

import numpy as np

from tokenreel.rows.pieces import Pieces, ragged_index
from tokenreel.store.split import Split


def token_pieces(
    split: Split,
    row_offsets: np.ndarray,
    *,
    position: np.ndarray,
    length: np.ndarray,
    document: np.ndarray,
    first: np.ndarray,
) -> Pieces:
    """Return the pieces of rows made of token ranges, none empty; see Pieces for the rest.

    position: int64, where in the split a range begins. A range that reaches into further
    shards gives several pieces; only the first of them can begin a segment.
    """
    bounds = split.token_starts
    shard = bounds.searchsorted(position, side="right") - 1
    whole = Pieces(
        row_offsets=row_offsets,
        shard=shard,
        start=position - bounds[shard],
        length=length,
        document=document,
        first=first,
    )
    if (position + length <= bounds[shard + 1]).all():
        return whole
    return _cut_at_shards(whole, bounds)


def _cut_at_shards(pieces: Pieces, bounds: np.ndarray) -> Pieces:
    """Cut pieces that leave their shard; `bounds` are the positions of the shards and the end."""
    start = bounds[pieces.shard] + pieces.start
    stop = start + pieces.length
    counts = np.searchsorted(bounds, stop - 1, side="right") - pieces.shard
    shard = ragged_index(pieces.shard, counts)
    begin = np.maximum(np.repeat(start, counts), bounds[shard])
    length = np.minimum(np.repeat(stop, counts), bounds[shard + 1]) - begin
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    first = np.zeros(len(shard), bool)
    first[offsets[:-1]] = pieces.first
    filled = length > 0  # an empty shard between two others gives nothing
    kept = np.concatenate((np.zeros(1, np.int64), np.cumsum(filled)))
    return Pieces(
        row_offsets=kept[offsets[pieces.row_offsets]],
        shard=shard[filled],
        start=(begin - bounds[shard])[filled],
        length=length[filled],
        document=np.repeat(pieces.document, counts)[filled],
        first=first[filled],
    )
