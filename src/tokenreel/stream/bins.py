"""The bin packer: documents in blocks, each block packed by itself, first fit, longest first.

A block is `packing_buffer_docs` documents, and as many again until they fill 32 rows; four
times 32 rows of tokens close it at fewer documents, because more of them pack hardly better.
It is cut into segments and packed as a store packs them (rows/segments.py, rows/packing.py):
whatever its length, a document is out when its block is. The last row of a block is half empty
on average: 1.6 % of 32. Blocks run on from epoch to epoch; only the end of the stream makes
one smaller.

Memory, and with it the state: one block, and what was encoded together with its last document.
That is below 128 · (T + 1) tokens, the tokens of 2^17 characters (or of 128 · (T + 1), if that
is more), and one document: a document is encoded, packed and kept as a whole, however long it
is. To go on within a block it is packed again, from the state, and its first rows passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from tokenreel.rows.packing import pack
from tokenreel.rows.pieces import Pieces, ragged_index
from tokenreel.rows.segments import Segments, cut, document_bounds
from tokenreel.stream.arrivals import Arrived, grouped
from tokenreel.stream.chunk import Chunk, joined
from tokenreel.stream.ledger import counts_of, nothing_counted
from tokenreel.stream.rows import Mark, Masking, Rows

METHOD = "first_fit"
MIN_BLOCK_ROWS = 32
MAX_BLOCK_ROWS = 4 * MIN_BLOCK_ROWS  # of tokens, before the document that reaches them
ENCODED_CHARACTERS = 1 << 17  # at once, at least: the encoder checks a stretch of every group


class BinPacker:
    """Pack what arrives, block by block."""

    def __init__(self, masking: Masking, *, block_docs: int, max_docs_per_row: int | None) -> None:
        self._block_docs = block_docs
        self._masking = masking
        self._max_docs_per_row = max_docs_per_row
        capacity = masking.seq_len + 1
        self._min_tokens, self._max_tokens = MIN_BLOCK_ROWS * capacity, MAX_BLOCK_ROWS * capacity

    def groups(self, epochs: Iterable[Iterable[Arrived]]) -> Iterator[list[Arrived]]:
        """Yield what is encoded at once: so many documents or characters, of whichever epochs."""
        characters = max(ENCODED_CHARACTERS, self._max_tokens)
        return grouped(chain.from_iterable(epochs), self._block_docs, characters)

    def pack(self, chunks: Iterator[Chunk], *, held: Chunk, taken: int) -> Iterator[Rows]:
        """Yield the rows of what is held, after the first `taken`, and of the chunks behind it."""
        for waiting, num_docs in self._blocks(chunks, held):
            yield self._block(waiting, num_docs, taken)
            taken = 0

    def _blocks(self, chunks: Iterator[Chunk], held: Chunk) -> Iterator[tuple[Chunk, int]]:
        """Yield what waits when a block is full, and how many documents of that are the block."""
        waiting = [held]
        while True:
            num_docs = self._full_block(waiting)
            if num_docs is None:
                chunk = next(chunks, None)
                if chunk is None:
                    break
                waiting.append(chunk)
                continue
            whole = joined(waiting)
            yield whole, num_docs
            waiting = [whole.part(num_docs, len(whole))]
        rest = joined(waiting)
        if len(rest):
            yield rest, len(rest)

    def _full_block(self, waiting: Sequence[Chunk]) -> int | None:
        """Return how many documents the next block has; None if it is not full yet."""
        if sum(len(chunk.ids) for chunk in waiting) < self._min_tokens:
            return None
        lengths = [np.diff(chunk.documents.offsets) for chunk in waiting]
        tokens = np.cumsum(np.concatenate(lengths))  # up to and with each document
        is_counted = np.arange(1, len(tokens) + 1) % self._block_docs == 0
        closes = (is_counted & (tokens >= self._min_tokens)) | (tokens >= self._max_tokens)
        return int(closes.argmax()) + 1 if closes.any() else None

    def _block(self, waiting: Chunk, num_docs: int, taken: int) -> Rows:
        """Return rows of the first documents that wait, after the first `taken` rows."""
        block, capacity = waiting.part(0, num_docs), self._masking.seq_len + 1
        documents = block.documents
        bounds, lengths = document_bounds(block.split, 0, len(documents))
        segments = cut(block.split, bounds, capacity=capacity, truncation="split")
        row_offsets, order = pack_within(
            segments.num_tokens, capacity, max_items=self._max_docs_per_row
        )
        num_rows, whole = len(row_offsets) - 1, _block_counts(block, lengths)
        if taken >= num_rows:
            rows = self._masking.no_rows()
            rows.rest[:] = whole * (taken == 0)
            return rows
        pieces = _pieces(row_offsets, segments.take(order))
        arrays, trained = self._masking.fill(documents.ids, pieces)
        counts = _row_counts(pieces, documents.offsets, trained, capacity=capacity)
        counts[0] += whole
        marks: list[Mark] = [(waiting, row + 1) for row in range(num_rows - 1)]
        marks.append((waiting.part(num_docs, len(waiting)), 0))
        return Rows(
            arrays={name: array[taken:] for name, array in arrays.items()},
            counts=counts[taken:],
            marks=marks[taken:],
            rest=nothing_counted(),
        )


def _pieces(row_offsets: np.ndarray, placed: Segments) -> Pieces:
    """Return segments, in the order of their placing, as pieces of rows."""
    return Pieces(
        row_offsets=row_offsets,
        shard=np.zeros(len(placed.start), np.int64),
        start=placed.start,
        length=placed.length,
        document=placed.document,
        first=np.ones(len(placed.start), bool),
    )


def _block_counts(block: Chunk, lengths: np.ndarray) -> np.ndarray:
    """Return what a block adds to the account, whatever its rows."""
    is_short = lengths < 2
    return counts_of(
        1,
        documents=len(lengths),
        short_documents=is_short.sum(),
        truncated_documents=(block.truncated > 0).sum(),
        skipped_records=block.skipped.sum(),
        tokens=lengths.sum() + block.truncated.sum(),
        truncated=block.truncated.sum(),
        dropped=lengths[is_short].sum(),
    )[0]


def _row_counts(
    pieces: Pieces, begins: np.ndarray, trained: np.ndarray, *, capacity: int
) -> np.ndarray:
    """Return what each row adds; a piece that is not at its document's begin repeats a token."""
    firsts = pieces.row_offsets[:-1]
    shown = np.add.reduceat(pieces.length, firsts)
    goes_on = (pieces.start != begins[pieces.document]).astype(np.int64)
    overlap = np.add.reduceat(goes_on, firsts)
    return counts_of(
        pieces.num_rows,
        placed=shown - overlap,
        overlap=overlap,
        trained=trained,
        masked=shown - trained,
        padding=capacity - shown,
        rows=1,
    )


def pack_within(
    lengths: np.ndarray, capacity: int, *, max_items: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Pack as rows/packing.py does, with at most `max_items` in a row.

    What a row has too many, its shortest, is packed once more, among itself and behind the
    others; rows that still have too many are divided.

    >>> row_offsets, order = pack_within(np.array([1, 6, 2, 1]), 10, max_items=2)
    >>> row_offsets.tolist(), order.tolist()
    ([0, 2, 4], [1, 2, 0, 3])
    """
    row_offsets, order = pack(lengths, capacity, method=METHOD)
    sizes = np.diff(row_offsets)
    if max_items is None or not (sizes > max_items).any():
        return row_offsets, order
    # Longest first in each row; of equals the first given.
    order = order[np.lexsort((order, -lengths[order], np.repeat(np.arange(len(sizes)), sizes)))]
    is_over = _ranks(sizes) >= max_items
    waiting = np.sort(order[is_over])
    more_offsets, more = pack(lengths[waiting], capacity, method=METHOD)
    order = np.append(order[~is_over], waiting[more])
    sizes = np.append(np.minimum(sizes, max_items), np.diff(more_offsets))
    return np.append(np.flatnonzero(_ranks(sizes) % max_items == 0), len(order)), order


def _ranks(sizes: np.ndarray) -> np.ndarray:
    """Return 0, 1, … for the items of each row."""
    return ragged_index(np.zeros(len(sizes), np.int64), sizes)
