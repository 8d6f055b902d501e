"""Ranges of a split's tokens as pieces of its shards, and pieces cut where documents end."""

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
    # counts: how many shards each piece touches, empty ones included; there is a cut for each.
    counts = np.searchsorted(bounds, stop - 1, side="right") - pieces.shard
    shard = ragged_index(pieces.shard, counts)
    # A cut is what its piece and its shard have in common.
    begin = np.maximum(np.repeat(start, counts), bounds[shard])
    length = np.minimum(np.repeat(stop, counts), bounds[shard + 1]) - begin
    # Piece p became cuts offsets[p] to offsets[p + 1]; a segment can only begin with the first.
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


def cut_at_documents(split: Split, pieces: Pieces) -> Pieces:
    """Cut pieces where a document ends, and number them; vectorised, shard by shard.

    A shard knows its own documents only, so the pieces of each are cut together, and all put back
    into the order of their rows at the end.
    """
    counts = np.zeros(len(pieces.shard), np.int64)  # into how many each piece is cut
    parts: list[tuple[np.ndarray, ...]] = []
    for number in np.unique(pieces.shard):
        mine = np.flatnonzero(pieces.shard == number)
        begin = pieces.start[mine]
        shard = split.shards[number]
        # Per cut piece: which of `mine` it comes from, its tokens in the shard, its document.
        owner, starts, stops, documents = shard.cut_at_documents(begin, begin + pieces.length[mine])
        counts[mine] = np.bincount(owner, minlength=len(mine))
        # The first cut of each piece: where the owner is another than that of the cut before.
        is_first_cut = np.ones(len(owner), bool)
        is_first_cut[1:] = owner[1:] != owner[:-1]
        # A piece that goes on with the document of the piece before begins no segment: it is the
        # rest of a row that came over from the shard before, as did the document.
        came_over = number > 0 and split.shards[number - 1].continues
        goes_on = is_first_cut & ~pieces.first[mine][owner] & (starts == 0) & came_over
        base = int(split.document_starts[number])
        shards = np.full(len(owner), number)
        parts.append((mine[owner], shards, starts, stops - starts, documents + base, ~goes_on))
    if not parts:
        return pieces
    # One column each: piece it comes from, shard, start, length, document, first.
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")  # stable: the cuts of a piece stay in order
    # Row r had pieces row_offsets[r] on; before piece p there are now totals[p] pieces.
    totals = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return Pieces(
        row_offsets=totals[pieces.row_offsets],
        shard=columns[1][order],
        start=columns[2][order],
        length=columns[3][order],
        document=columns[4][order],
        first=columns[5][order],
    )
