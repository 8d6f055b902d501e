"""The sequential packer: documents end to end, in the order they come, in windows.

Window i is tokens i·T to i·T + T of the stream, as in a store (rows/windows.py): its last
label is the first input of the next, so no transition is lost. Memory: the chunk that is
being cut and less than a window. To go on after a window, its last document is encoded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenreel.rows.whole import token_pieces
from tokenreel.rows.windows import cut_at_documents
from tokenreel.stream.encoder import Chunk
from tokenreel.stream.ledger import counts_of, nothing_counted
from tokenreel.stream.memory import memory_split
from tokenreel.stream.place import Place
from tokenreel.stream.rows import Mark, Masking, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Tokens from the start of the next window on, and the documents they are of.

    begins: int64 [n], where each document begins; the first not after token 0. truncated,
    skipped: int64 [n], see Chunk.
    """

    ids: np.ndarray
    begins: np.ndarray
    places: list[Place]
    truncated: np.ndarray
    skipped: np.ndarray
    after: Place

    @property
    def is_start(self) -> bool:
        """Whether this is where the whole stream begins."""
        return bool(self.places) and self.places[0].is_start and not self.begins[0]

    def join(self, chunk: Chunk) -> Buffer:
        """Return the buffer with what came next."""
        return Buffer(
            ids=np.concatenate((self.ids, chunk.documents.ids)),
            begins=np.concatenate((self.begins, len(self.ids) + chunk.documents.offsets[:-1])),
            places=[*self.places, *chunk.places],
            truncated=np.concatenate((self.truncated, chunk.truncated)),
            skipped=np.concatenate((self.skipped, chunk.skipped)),
            after=chunk.after,
        )

    def document_at(self, position: int) -> int:
        """Return which document holds a token."""
        return max(int(np.searchsorted(self.begins, position, side="right")) - 1, 0)

    def mark_at(self, position: int) -> Mark:
        """Return where to read, and how many tokens to pass over there, to begin at a token."""
        if position >= len(self.ids):
            return self.after, 0
        document = self.document_at(position)
        return self.places[document], position - int(self.begins[document])

    def cut(self, position: int) -> Buffer:
        """Return the buffer from a token on."""
        first = self.document_at(position)
        return Buffer(
            ids=self.ids[position:],
            begins=self.begins[first:] - position,
            places=self.places[first:],
            truncated=self.truncated[first:],
            skipped=self.skipped[first:],
            after=self.after,
        )


class WindowPacker:
    """Cut what arrives into windows; `max_characters` are encoded at once."""

    max_docs = 1 << 30

    def __init__(self, masking: Masking, *, end: str, max_characters: int) -> None:
        self.max_characters = max_characters
        self._masking = masking
        self._pads = end == "pad"

    def pack(self, chunks: Iterator[Chunk], *, place: Place, taken: int) -> Iterator[Rows]:
        """Yield the windows of chunks read from `place`, after `taken` tokens of the first."""
        nothing = np.zeros(0, np.int64)
        buffer = Buffer(
            ids=np.zeros(0, np.uint32),
            begins=nothing,
            places=[],
            truncated=nothing,
            skipped=nothing,
            after=place,
        )
        for chunk in chunks:
            buffer = buffer.join(chunk)
            if taken:
                buffer, taken = buffer.cut(taken), 0
            num_windows = max(len(buffer.ids) - 1, 0) // self._masking.seq_len
            if num_windows:
                yield self._windows(buffer, num_windows)
                buffer = buffer.cut(num_windows * self._masking.seq_len)
        yield self._last(buffer)

    def _windows(self, buffer: Buffer, num_windows: int) -> Rows:
        seq_len, size = self._masking.seq_len, len(buffer.ids)
        starts = np.arange(num_windows) * seq_len
        shown = np.minimum(seq_len + 1, size - starts)
        split = memory_split(buffer.ids, np.append(np.maximum(buffer.begins, 0), size))
        windows = token_pieces(
            split,
            np.arange(num_windows + 1),
            position=starts,
            length=shown,
            document=np.full(num_windows, -1),
            first=np.ones(num_windows, bool),
        )
        arrays, trained = self._masking.fill(buffer.ids, cut_at_documents(split, windows))
        # A window owns the tokens after its first, which was the last of the one before.
        low = starts + 1
        low[0] -= buffer.is_start
        owned = starts + shown - low
        counts = self._documents(buffer, np.append(low, starts[-1] + shown[-1]))
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
        marks = [buffer.mark_at(position) for position in (starts + seq_len).tolist()]
        return Rows(arrays=arrays, counts=counts, marks=marks, rest=nothing_counted())

    def _last(self, buffer: Buffer) -> Rows:
        """Return what the end of the stream leaves, padded or dropped."""
        size = len(buffer.ids)
        if self._pads and size > 1:
            rows = self._windows(buffer, 1)
            stop = np.array([size, max(size, int(buffer.begins[-1])) + 1])
        else:
            rows = self._masking.no_rows()
            stop = np.array([1 - buffer.is_start, size + 1])
            left = max(size - int(stop[0]), 0)
            rows.rest[:] += counts_of(1, tokens=left, dropped=left)[0]
        rows.rest[:] += self._documents(buffer, stop)[0]
        return rows

    @staticmethod
    def _documents(buffer: Buffer, edges: np.ndarray) -> np.ndarray:
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
