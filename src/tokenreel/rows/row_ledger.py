"""The account of the tokens of an epoch, closed in one place for every kind of row.

    placed + truncated + dropped  =  tokens of the split
    placed + overlap + padding    =  slots  =  rows · (T + 1)
    trained + masked              =  placed + overlap

placed      tokens that stand in a row, each counted once
overlap     tokens that stand in a second row too: the last of one and the first of the next
truncated   tokens cut off documents that are placed
dropped     all others: of documents left out, of rows left out, between documents
trained     targets that weigh something; masked, the other tokens in rows
padding     slots without a token

A kind of row counts rows, placed, overlap, truncated and trained, and whatever else it wants to
tell; the other figures are what is left, so that the three sums hold by construction.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tokenreel.rows.segments import Bounds, Segments

Ledger = dict[str, int]


def add_counts(ledger: Ledger, counts: Mapping[str, int]) -> None:
    """Add the counts of a block of documents to a ledger that is not closed yet."""
    for name, count in counts.items():
        ledger[name] = ledger.get(name, 0) + count


def close_ledger(ledger: Ledger, *, num_tokens: int, seq_len: int) -> None:
    """Add the figures that follow from those that were counted.

    >>> ledger = {"rows": 2, "placed": 9, "overlap": 1, "truncated": 3, "trained": 8}
    >>> close_ledger(ledger, num_tokens=14, seq_len=5)
    >>> {name: ledger[name] for name in ("tokens", "dropped", "masked", "slots", "padding")}
    {'tokens': 14, 'dropped': 2, 'masked': 2, 'slots': 12, 'padding': 2}
    """
    shown = ledger["placed"] + ledger["overlap"]
    ledger["tokens"] = num_tokens
    ledger["dropped"] = num_tokens - ledger["placed"] - ledger["truncated"]
    ledger["masked"] = shown - ledger["trained"]
    ledger["slots"] = ledger["rows"] * (seq_len + 1)
    ledger["padding"] = ledger["slots"] - shown


def count_placed(segments: Segments, bounds: Bounds, *, truncation: str) -> Ledger:
    """Count placed, overlap and truncated of the segments, in order, that rows are made of.

    `bounds`: the documents they were cut from.
    """
    # Two segments of one document overlap in a token if the second begins before the first ends.
    follows = segments.document[1:] == segments.document[:-1]
    touches = segments.start[1:] < segments.start[:-1] + segments.length[:-1]
    overlap = int(np.count_nonzero(follows & touches))
    lengths = segments.num_tokens
    truncated = 0
    if truncation != "split":  # then every segment is all that is shown of its document
        truncated = int((_document_lengths(segments, bounds) - lengths).sum())
    return {"placed": int(lengths.sum()) - overlap, "overlap": overlap, "truncated": truncated}


def _document_lengths(segments: Segments, bounds: Bounds) -> np.ndarray:
    return bounds.length[np.searchsorted(bounds.document, segments.document)]
