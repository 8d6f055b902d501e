"""Documents, or parts of them, as pieces of shards."""

from __future__ import annotations

import numpy as np

from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split


def document_pieces(
    split: Split,
    row_offsets: np.ndarray,
    documents: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
) -> Pieces:
    """Return pieces that show `lengths` tokens of documents from their `starts` on, in order.

    Each document part is a segment of its own. One that lies in several shards gives
    several pieces; the first of them begins the segment.
    """
    shard, begin, end = split.locate(documents)
    plain = begin + starts + lengths <= end
    if plain.all():
        return Pieces(
            row_offsets=row_offsets,
            shard=shard,
            start=begin + starts,
            length=lengths,
            document=documents,
            first=np.ones(len(documents), bool),
        )
    return _with_straddling(split, row_offsets, documents, starts, lengths)


def _with_straddling(
    split: Split,
    row_offsets: np.ndarray,
    documents: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
) -> Pieces:
    """Do the same piece by piece: giant documents are rare."""
    rows: list[tuple[int, int, int, int, bool]] = []
    counts = np.empty(len(documents), np.int64)
    for i, number in enumerate(documents.tolist()):
        position = split.document_span(number)[0] + int(starts[i])
        stop = position + int(lengths[i])
        before = len(rows)
        while position < stop:
            shard = int(np.searchsorted(split.token_starts, position, side="right")) - 1
            base = int(split.token_starts[shard])
            length = min(stop, int(split.token_starts[shard + 1])) - position
            rows.append((shard, position - base, length, number, len(rows) == before))
            position += length
        counts[i] = len(rows) - before
    totals = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Pieces(
        row_offsets=totals[row_offsets],
        shard=columns[0],
        start=columns[1],
        length=columns[2],
        document=columns[3],
        first=columns[4].astype(bool),
    )
