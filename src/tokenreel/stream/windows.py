"""The sequential packer: documents end to end, in the order they come, in windows.

Window i is tokens i·T to i·T + T of the stream, as in a store (rows/windows.py): its last
label is the first input of the next, so no transition is lost. Memory: the chunk that is
being cut and less than a window; both are in the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tokenreel.rows.ranges import token_pieces
from tokenreel.rows.windows import cut_at_documents
from tokenreel.stream.arrivals import Arrived, grouped
from tokenreel.stream.chunk import Chunk, joined, no_documents
from tokenreel.stream.ledger import counts_of, nothing_counted
from tokenreel.stream.rows import Mark, Masking, Rows

ANY_NUMBER = 1 << 30


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

    def pack(self, chunks: Iterator[Chunk], *, held: Chunk, taken: int) -> Iterator[Rows]:
        """Yield the windows of what is held, after its first `taken` tokens, and of the next."""
        buffer, seq_len = held, self._masking.seq_len
        is_start = held.after.is_start and not len(held)
        while True:
            num_windows = max(len(buffer.ids) - taken - 1, 0) // seq_len
            if num_windows:
                yield self._windows(buffer, taken, num_windows, is_start=is_start)
                taken, is_start = taken + num_windows * seq_len, False
            chunk = next(chunks, None)
            if chunk is None:
                break
            buffer, taken = joined([buffer.cut(taken), chunk]), 0
        yield self._last(buffer.cut(taken), is_start=is_start)

    def _windows(self, buffer: Chunk, start: int, num_windows: int, *, is_start: bool) -> Rows:
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
        # A window owns the tokens after its first, which was the last of the one before.
        low = starts + 1
        low[0] -= is_start
        owned = starts + shown - low
        counts = _documents(buffer, np.append(low, starts[-1] + shown[-1]))
        counts += counts_of(
            num_windows,
            tokens=owned,
            placed=owned,
            overlap=shown - owned,
            trained=trained,
            masked=shown - trained,
            padding=seq_len + 1 - shown,
            rows=1,
        )
        marks = [_mark(buffer, position) for position in (starts + seq_len).tolist()]
        return Rows(arrays=arrays, counts=counts, marks=marks, rest=nothing_counted())

    def _last(self, buffer: Chunk, *, is_start: bool) -> Rows:
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


def _mark(buffer: Chunk, position: int) -> Mark:
    """Return what is held when all before a token has been taken."""
    if position >= len(buffer.ids):
        return no_documents(buffer.after), 0
    return buffer, position


def _documents(buffer: Chunk, edges: np.ndarray) -> np.ndarray:
    """Return counts of the documents that begin between edges, int64 [edges - 1, names]."""
    places = np.searchsorted(buffer.begins, edges, side="left")
    cut_off = np.concatenate((np.zeros(1, np.int64), np.cumsum(buffer.truncated)))
    cut_docs = np.concatenate((np.zeros(1, np.int64), np.cumsum(buffer.truncated > 0)))
    skipped = np.concatenate((np.zeros(1, np.int64), np.cumsum(buffer.skipped)))
    return counts_of(
        len(edges) - 1,
        documents=np.diff(places),
        truncated_documents=np.diff(cut_docs[places]),
        truncated=np.diff(cut_off[places]),
        tokens=np.diff(cut_off[places]),
        skipped_records=np.diff(skipped[places]),
    )
