"""The first tokens of every document, one document a row, left out only by its length.

Unlike episodes, which leave out what has no trained target, these are all documents of
at least `min_tokens` tokens: what contract 000 promises to show once per epoch. Reads
the document index, no token; about 50 bytes of memory for each row.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces, ragged_index
from tokenreel.rows.ranges import token_pieces
from tokenreel.store.split import Split

DOCUMENTS_AT_ONCE = 1 << 20


class DocumentHeads:
    """The documents of a split, each cut to its first T + 1 tokens.

    documents: their numbers, int64 [num_rows].
    """

    def __init__(self, split: Split, seq_len: int, *, min_tokens: int = 2) -> None:
        if min_tokens < 1:
            raise ConfigError("bad min_tokens", expected=">= 1", actual=min_tokens)
        self.split, self.seq_len, self._min_tokens = split, seq_len, min_tokens
        num_documents = int(split.document_starts[-1])
        blocks = [
            self._plan_block(first, min(first + DOCUMENTS_AT_ONCE, num_documents))
            for first in range(0, num_documents, DOCUMENTS_AT_ONCE)
        ]
        if not any(len(block[0]) for block in blocks):
            raise ConfigError(
                "no document is long enough, so there are no rows",
                where=split.shards[0].token_file.path,
                expected=f"one of >= {min_tokens:,} tokens",
                actual=f"{num_documents:,} documents without",
            )
        self.documents, position, length = map(np.concatenate, zip(*blocks, strict=True))
        self._table = token_pieces(
            split,
            np.arange(len(self.documents) + 1),
            position=position,
            length=length,
            document=self.documents,
            first=np.ones(len(self.documents), bool),
        )

    def _plan_block(self, first: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return number, position and shown length of the documents that are long enough."""
        begins, ends = self.split.document_bounds(first, stop)
        kept = np.flatnonzero(ends - begins >= self._min_tokens)
        return first + kept, begins[kept], np.minimum(ends - begins, self.seq_len + 1)[kept]

    @property
    def num_rows(self) -> int:
        """How many documents are rows."""
        return len(self.documents)

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers."""
        table, chosen, offsets = self._table, rows, _one_each(len(rows))
        if len(table.shard) > self.num_rows:  # some documents go on in another shard
            counts = np.diff(table.row_offsets)[rows]
            chosen = ragged_index(table.row_offsets[rows], counts)
            offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        return Pieces(
            row_offsets=offsets,
            shard=table.shard[chosen],
            start=table.start[chosen],
            length=table.length[chosen],
            document=table.document[chosen],
            first=table.first[chosen],
        )


@lru_cache(maxsize=8)
def _one_each(count: int) -> np.ndarray:
    """Return the row offsets of rows of one piece: batches of one size share them."""
    offsets = np.arange(count + 1)
    offsets.flags.writeable = False
    return offsets
