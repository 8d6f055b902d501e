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
    """Cut pieces where a document ends, and number them; vectorised, shard by shard."""
    counts = np.zeros(len(pieces.shard), np.int64)
    parts: list[tuple[np.ndarray, ...]] = []
    for number in np.unique(pieces.shard):
        mine = np.flatnonzero(pieces.shard == number)
        begin = pieces.start[mine]
        shard = split.shards[number]
        owner, starts, stops, documents = shard.cut_at_documents(begin, begin + pieces.length[mine])
        heads = np.ones(len(owner), bool)
        heads[1:] = owner[1:] != owner[:-1]
        # A piece that goes on with the document of the piece before begins no segment.
        continued = number > 0 and split.shards[number - 1].continues
        goes_on = heads & ~pieces.first[mine][owner] & (starts == 0) & continued
        counts[mine] = np.bincount(owner, minlength=len(mine))
        base = int(split.document_starts[number])
        shards = np.full(len(owner), number)
        parts.append((mine[owner], shards, starts, stops - starts, documents + base, ~goes_on))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    totals = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return Pieces(
        row_offsets=totals[pieces.row_offsets],
        shard=columns[1][order],
        start=columns[2][order],
        length=columns[3][order],
        document=columns[4][order],
        first=columns[5][order],
    )
