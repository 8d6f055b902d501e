"""The packers: documents in, rows out, with the rows' counts and where each leaves the packer.

Sequential: documents end to end, in the order they come, in windows. Window i is tokens i·T to
i·T + T of the stream, as in a store (rows/windows.py): its last label is the first input of the
next, so no transition is lost. Memory: the documents that are being cut, encoded together, and
less than a window; both are in the state.

Bin: documents in blocks, each block packed by itself, first fit, longest first.
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
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from tokenreel.feed.gather import IGNORED, Gathered, empty_rows, gather
from tokenreel.rows.packing import pack
from tokenreel.rows.pieces import Pieces, ragged_index
from tokenreel.rows.ranges import cut_at_documents, token_pieces
from tokenreel.rows.segments import Segments, cut, document_bounds
from tokenreel.stream.arrivals import Arrived, grouped
from tokenreel.stream.encoded_documents import EncodedDocuments, joined, no_documents
from tokenreel.stream.lane import ARRAYS, Rows
from tokenreel.stream.stream_state import counts_of, nothing_counted, row_counts

ANY_NUMBER = 1 << 30
METHOD = "first_fit"
MIN_BLOCK_ROWS = 32
MAX_BLOCK_ROWS = 4 * MIN_BLOCK_ROWS  # of tokens, before the document that reaches them
ENCODED_CHARACTERS = 1 << 17  # at once, at least: the encoder checks a stretch of every group


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """How rows are filled; `ignored_id` is a token that is no target."""

    seq_len: int
    pad_id: int
    ignored_id: int | None = None
    mask_borders: bool = True

    def fill(self, ids: np.ndarray, pieces: Pieces) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the arrays of rows that pieces of `ids` make, and their targets, int64 [n]."""
        rows = self._gathered(ids, pieces)
        labels = rows.labels
        if not self.mask_borders:  # labels as if each row were one segment
            begins_row = np.zeros_like(pieces.first)
            begins_row[pieces.row_offsets[:-1]] = True
            labels = self._gathered(ids, replace(pieces, first=begins_row)).labels
        if self.ignored_id is not None:
            labels[labels == self.ignored_id] = IGNORED
        arrays = {name: getattr(rows, name).astype(np.int32, copy=False) for name in ARRAYS}
        arrays["labels"] = labels.astype(np.int32)
        return arrays, np.count_nonzero(labels != IGNORED, axis=1)

    def _gathered(self, ids: np.ndarray, pieces: Pieces) -> Gathered:
        rows = empty_rows(pieces.num_rows, self.seq_len)
        gather(
            (np.ascontiguousarray(ids),),
            pieces,
            rows,
            out_row=np.arange(pieces.num_rows),
            buffer=pieces.shard,
            spans=None,
            pad_id=self.pad_id,
        )
        return rows

    def padding(self, num_rows: int) -> dict[str, np.ndarray]:
        """Return rows that are padding throughout."""
        arrays = {name: np.zeros((num_rows, self.seq_len), np.int32) for name in ARRAYS}
        arrays["input_ids"][:] = self.pad_id
        arrays["labels"][:] = IGNORED
        return arrays

    def no_rows(self) -> Rows:
        """Return an object of zero rows, whose `rest` may be counted in."""
        return Rows(arrays=self.padding(0), counts=counts_of(0), held=[], rest=nothing_counted())


class WindowPacker:
    """Cut what arrives into windows; `max_characters` are encoded at once."""

    def __init__(self, masking: Masking, *, end: str, max_characters: int) -> None:
        self._max_characters = max_characters
        self._masking = masking
        self._pads = end == "pad"

    def groups(self, epochs: Iterable[Iterable[Arrived]]) -> Iterator[list[Arrived]]:
        """Yield what is encoded at once: so many characters, or the rest of an epoch.

        Windows run on from group to group: a small corpus need not be read many times to begin.
        """
        for documents in epochs:
            yield from grouped(documents, ANY_NUMBER, self._max_characters)

    def pack(
        self, arriving: Iterator[EncodedDocuments], *, held: EncodedDocuments, taken: int
    ) -> Iterator[Rows]:
        """Yield the windows of what is held, after its first `taken` tokens, and of the next."""
        buffer, seq_len = held, self._masking.seq_len
        is_start = held.after.is_start and not len(held)
        while True:
            num_windows = max(len(buffer.ids) - taken - 1, 0) // seq_len
            if num_windows:
                yield self._windows(buffer, taken, num_windows, is_start=is_start)
                taken, is_start = taken + num_windows * seq_len, False
            following = next(arriving, None)
            if following is None:
                break
            buffer, taken = joined([buffer.cut(taken), following]), 0
        yield self._last(buffer.cut(taken), is_start=is_start)

    def _windows(
        self, buffer: EncodedDocuments, start: int, num_windows: int, *, is_start: bool
    ) -> Rows:
        """Return windows of a buffer from a token on; `is_start`: the stream begins with it."""
        seq_len, size = self._masking.seq_len, len(buffer.ids)
        starts = start + np.arange(num_windows) * seq_len
        shown = np.minimum(seq_len + 1, size - starts)
        windows = token_pieces(
            buffer.split,
            np.arange(num_windows + 1),
            position=starts,
            length=shown,
            document=np.full(num_windows, -1),
            first=np.ones(num_windows, bool),
        )
        arrays, trained = self._masking.fill(buffer.ids, cut_at_documents(buffer.split, windows))
        # A window owns the tokens after its first, which was the last of the one before: from
        # `low` on, int64 [windows]. Only the first window of the stream owns its first token too.
        low = starts + 1
        low[0] -= is_start
        owned = starts + shown - low
        counts = _documents(buffer, np.append(low, starts[-1] + shown[-1]))
        counts += counts_of(num_windows, tokens=owned)
        counts += row_counts(shown, overlap=shown - owned, trained=trained, seq_len=seq_len)
        held = [_held_from(buffer, position) for position in (starts + seq_len).tolist()]
        return Rows(arrays=arrays, counts=counts, held=held, rest=nothing_counted())

    def _last(self, buffer: EncodedDocuments, *, is_start: bool) -> Rows:
        """Return what the end of the stream leaves, padded or dropped."""
        size = len(buffer.ids)
        if self._pads and size > 1:
            rows = self._windows(buffer, 0, 1, is_start=is_start)
            rows.counts[:] += _documents(buffer, np.array([size, size + 1]))  # those without tokens
            return rows
        rows, first = self._masking.no_rows(), 1 - is_start
        left = max(size - first, 0)
        rows.rest[:] += counts_of(1, tokens=left, dropped=left)[0]
        rows.rest[:] += _documents(buffer, np.array([first, size + 1]))[0]
        return rows


def _held_from(buffer: EncodedDocuments, position: int) -> tuple[EncodedDocuments, int]:
    """Return what is held when all before a token has been taken."""
    if position >= len(buffer.ids):
        return no_documents(buffer.after), 0
    return buffer, position


def _documents(buffer: EncodedDocuments, edges: np.ndarray) -> np.ndarray:
    """Return counts of the documents that begin between edges, int64 [edges - 1, names]."""
    # How many documents begin before each edge, and the sums over those documents: what lies
    # between two edges is a difference, whatever the number of windows.
    num_before = np.searchsorted(buffer.begins, edges, side="left")

    def between(values: np.ndarray) -> np.ndarray:
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(values)))
        return np.diff(sums[num_before])

    truncated = between(buffer.truncated)
    return counts_of(
        len(edges) - 1,
        documents=np.diff(num_before),
        truncated_documents=between(buffer.truncated > 0),
        truncated=truncated,
        tokens=truncated,
        skipped_records=between(buffer.skipped),
    )


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

    def pack(
        self, arriving: Iterator[EncodedDocuments], *, held: EncodedDocuments, taken: int
    ) -> Iterator[Rows]:
        """Yield the rows of what is held, after the first `taken`, and of what arrives."""
        for waiting, num_docs in self._blocks(arriving, held):
            yield self._block(waiting, num_docs, taken)
            taken = 0

    def _blocks(
        self, arriving: Iterator[EncodedDocuments], held: EncodedDocuments
    ) -> Iterator[tuple[EncodedDocuments, int]]:
        """Yield what waits when a block is full, and how many documents of that are the block."""
        waiting = [held]
        while True:
            num_docs = self._full_block(waiting)
            if num_docs is None:
                following = next(arriving, None)
                if following is None:
                    break
                waiting.append(following)
                continue
            whole = joined(waiting)
            yield whole, num_docs
            waiting = [whole.part(num_docs, len(whole))]
        rest = joined(waiting)
        if len(rest):
            yield rest, len(rest)

    def _full_block(self, waiting: Sequence[EncodedDocuments]) -> int | None:
        """Return how many documents the next block has; None if it is not full yet."""
        if sum(len(part.ids) for part in waiting) < self._min_tokens:
            return None
        lengths = [np.diff(part.documents.offsets) for part in waiting]
        # For each document: the tokens up to its end, and whether the block may close behind it,
        # by its number and enough tokens, or by its tokens alone.
        tokens = np.cumsum(np.concatenate(lengths))
        is_multiple = np.arange(1, len(tokens) + 1) % self._block_docs == 0
        closes = (is_multiple & (tokens >= self._min_tokens)) | (tokens >= self._max_tokens)
        return int(closes.argmax()) + 1 if closes.any() else None

    def _block(self, waiting: EncodedDocuments, num_docs: int, taken: int) -> Rows:
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
        # A piece that is not at its document's begin repeats the token before it; sums over the
        # pieces of each row.
        goes_on = pieces.start != documents.offsets[pieces.document]
        firsts = pieces.row_offsets[:-1]
        shown = np.add.reduceat(pieces.length, firsts)
        overlap = np.add.reduceat(goes_on.astype(np.int64), firsts)
        counts = row_counts(shown, overlap=overlap, trained=trained, seq_len=capacity - 1)
        counts[0] += whole
        held = [(waiting, row + 1) for row in range(num_rows - 1)]
        held.append((waiting.part(num_docs, len(waiting)), 0))
        rows = Rows(arrays=arrays, counts=counts, held=held, rest=nothing_counted())
        return rows.after(taken)


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


def _block_counts(block: EncodedDocuments, lengths: np.ndarray) -> np.ndarray:
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
    # What is beyond the first `max_items` of its row is packed into rows of its own, behind.
    is_over = _ranks(sizes) >= max_items
    waiting = np.sort(order[is_over])
    more_offsets, more = pack(lengths[waiting], capacity, method=METHOD)
    order = np.append(order[~is_over], waiting[more])
    sizes = np.append(np.minimum(sizes, max_items), np.diff(more_offsets))
    # A row begins at every `max_items`-th item of what was packed as one row.
    return np.append(np.flatnonzero(_ranks(sizes) % max_items == 0), len(order)), order


def _ranks(sizes: np.ndarray) -> np.ndarray:
    """Return 0, 1, … for the items of each row."""
    return ragged_index(np.zeros(len(sizes), np.int64), sizes)
