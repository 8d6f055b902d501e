"""Windows over the token stream of a split: closed form, no index.

Row i is tokens i·T to i·T + T, so that the last label of a row is the first input of
the next and no transition is lost; the last row is padded. Windows run across shards.
With `by_document` a document's border inside a window begins a new segment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces, ragged_index
from tokenreel.store.split import Split

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """The rows of a split as windows of `seq_len` inputs."""

    split: Split
    seq_len: int
    by_document: bool = False

    def __post_init__(self) -> None:
        if self.split.num_tokens < 2:
            raise ConfigError("too few tokens for a window", where=self.split.name, expected=">= 2")

    @property
    def num_rows(self) -> int:
        """How many windows there are."""
        return -(-(self.split.num_tokens - 1) // self.seq_len)

    @property
    def settings(self) -> dict[str, object]:
        """What the rows depend on besides the store."""
        kind = "document_windows" if self.by_document else "windows"
        return {"rows": kind, "version": VERSION, "seq_len": self.seq_len}

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers."""
        starts = rows.astype(np.int64) * self.seq_len
        stops = np.minimum(starts + self.seq_len + 1, self.split.num_tokens)
        by_shard = _cut_at_shards(self.split, starts, stops)
        return _cut_at_documents(self.split, by_shard) if self.by_document else by_shard

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop) for each row that shows tokens start to stop of a document."""
        first, last = self.split.document_span(document)
        row = max(first - 1, 0) // self.seq_len
        found = []
        while row < self.num_rows and row * self.seq_len < last:
            begin = max(first, row * self.seq_len)
            end = min(last, row * self.seq_len + self.seq_len + 1)
            if begin < end:
                found.append((row, begin - first, end - first))
            row += 1
        return found


def _cut_at_shards(split: Split, starts: np.ndarray, stops: np.ndarray) -> Pieces:
    bounds = split.token_starts
    first = np.searchsorted(bounds, starts, side="right") - 1
    last = np.searchsorted(bounds, stops - 1, side="right") - 1
    counts = last - first + 1
    shard = ragged_index(first, counts)
    begin = np.maximum(np.repeat(starts, counts), bounds[shard])
    end = np.minimum(np.repeat(stops, counts), bounds[shard + 1])
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    heads = np.zeros(len(shard), bool)
    heads[offsets[:-1]] = True
    filled = end > begin  # an empty shard between two others gives nothing
    kept = np.concatenate((np.zeros(1, np.int64), np.cumsum(filled)))
    return Pieces(
        row_offsets=kept[offsets],
        shard=shard[filled],
        start=(begin - bounds[shard])[filled],
        length=(end - begin)[filled],
        document=np.full(int(filled.sum()), -1),
        first=heads[filled],
    )


def _cut_at_documents(split: Split, pieces: Pieces) -> Pieces:
    """Cut pieces where a document ends, and number them."""
    parts: list[tuple[np.ndarray, ...]] = []
    counts = np.empty(len(pieces.shard), np.int64)
    for i, (shard_number, start, length) in enumerate(
        zip(pieces.shard.tolist(), pieces.start.tolist(), pieces.length.tolist(), strict=True)
    ):
        shard = split.shards[shard_number]
        begins, ends, numbers = shard.documents_between(start, start + length)
        base = int(split.document_starts[shard_number])
        # A piece that goes on with the document of the piece before begins no segment.
        goes_on = not pieces.first[i] and shard_number > 0 and begins[0] == 0
        goes_on = goes_on and split.shards[shard_number - 1].continues
        firsts = np.ones(len(begins), bool)
        firsts[0] = not goes_on
        parts.append(
            (np.full(len(begins), shard_number), begins, ends - begins, numbers + base, firsts)
        )
        counts[i] = len(begins)
    totals = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Pieces(
        row_offsets=totals[pieces.row_offsets],
        shard=columns[0],
        start=columns[1],
        length=columns[2],
        document=columns[3],
        first=columns[4],
    )
