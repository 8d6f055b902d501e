"""Windows in which nothing is trained, found when rows are planned.

Where every token is a target no window is without one, and nothing is read. Otherwise:
document borders cost about 10 ns per document (only a run of T one-token documents can
fill a window with borders); turns or stored weights are read once, some 4 M tokens at
a time, with 4 bytes of memory per window while that lasts. What is found is kept with the
plans of the store (plan_cache.py), so that only the first start pays for it. Prompts alone
(prompts.py) are rows without a target, and are not looked for here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tokenreel.errors import StoreError
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.segments import Bounds, Segments, count_targets
from tokenreel.store.split import Split

TOKENS_AT_ONCE = 1 << 22
DOCUMENTS_AT_ONCE = 1 << 20


def needs_survey(split: Split, *, by_document: bool) -> bool:
    """Return whether some window may be without a trained target: then all must be looked at."""
    return by_document or split.has_turns or split.has_weights


def remedy_for_prompts(split: Split) -> str | None:
    """Return what to do with a split of which nothing is trained, if it is of prompts."""
    # Builds keep the records of prompts alone. A split without shards keeps nothing.
    if not split.shards or not split.has_records:
        return None
    return 'the store is of prompts, in which nothing is trained: give the source rows="prompts"'


def count_row_targets(
    split: Split, pieces_of: Callable[[np.ndarray], Pieces], *, num_rows: int, seq_len: int
) -> np.ndarray:
    """Return how many trained targets each window has, int32 [num_rows]."""
    targets = np.empty(num_rows, np.int32)
    at_once = max(TOKENS_AT_ONCE // seq_len, 1)
    for first in range(0, num_rows, at_once):
        rows = np.arange(first, min(first + at_once, num_rows))
        targets[rows] = _count_targets(split, pieces_of(rows))
    return targets


def _count_targets(split: Split, pieces: Pieces) -> np.ndarray:
    """Return how many trained targets each of some rows has, int64 [rows]."""
    # The segments of all rows, each the pieces from one that is `first` up to the next.
    firsts = np.flatnonzero(pieces.first)
    positions = split.token_starts[pieces.shard] + pieces.start
    begin, length = positions[firsts], np.add.reduceat(pieces.length, firsts)
    # Counting must begin where no turn is cut: turns never leave their shard.
    origin = begin[0] if split.has_weights else split.token_starts[pieces.shard[0]]
    nothing = np.zeros_like(begin)
    segments = Segments(
        document=nothing,
        start=begin,
        length=length,
        prefix_start=begin,
        prefix_length=nothing,
    )
    whole = Bounds(document=nothing[:1], begin=np.array([origin]), length=length[:1])
    # totals[k]: the targets of the first k segments. A row has those of its own segments, which
    # are found by where its first piece stands among the first pieces of all segments.
    totals = np.concatenate((nothing[:1], np.cumsum(count_targets(split, segments, whole))))
    return np.diff(totals[np.searchsorted(firsts, pieces.row_offsets)])


def survey_documents(split: Split) -> tuple[int, int]:
    """Return how many documents have tokens, and the longest run of those with one only.

    Raise StoreError where some tokens belong to no document.
    """
    num_documents = int(split.document_starts[-1])
    num_filled, num_tokens, longest, run = 0, 0, 0, 0
    for lengths in _lengths(split, num_documents):
        # A run of one-token documents lies between two others; the first run of a block goes on
        # with the `run` that ended the block before, so it begins that much in front of 0.
        others = np.flatnonzero(lengths != 1)
        edges = np.concatenate(([-1 - run], others, [len(lengths)]))
        longest = max(longest, int(np.diff(edges).max()) - 1)
        run = int(edges[-1] - edges[-2]) - 1
        num_filled, num_tokens = num_filled + len(lengths), num_tokens + int(lengths.sum())
    if num_tokens != split.num_tokens:
        raise StoreError(
            "some tokens belong to no document, so a window over them has no segments",
            where=split.name,
            expected=f"{split.num_tokens:,} tokens in documents",
            actual=f"{num_tokens:,}",
            remedy="make rows of documents instead: episodes or packed",
        )
    return num_filled, longest


def _lengths(split: Split, num_documents: int) -> Iterator[np.ndarray]:
    """Yield the lengths of the documents that are not empty, block by block."""
    for first in range(0, num_documents, DOCUMENTS_AT_ONCE):
        begins, ends = split.document_bounds(first, min(first + DOCUMENTS_AT_ONCE, num_documents))
        lengths = ends - begins
        yield lengths[lengths > 0]
