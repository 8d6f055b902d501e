"""One document or chat per row, padded; what is too long is cut.

keep_first keeps the first T + 1 tokens, keep_last the last. Documents of fewer than
`min_tokens` tokens are left out when the rows are planned: 8 bytes of memory for
each document that is kept, none at all where every document is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.whole import document_pieces
from tokenreel.store.split import Split

VERSION = 1
TRUNCATIONS = ("keep_first", "keep_last")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episodes:
    """The documents of a split, one a row."""

    split: Split
    seq_len: int
    truncation: str = "keep_first"
    min_tokens: int = 2
    kept: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        if self.truncation not in TRUNCATIONS:
            raise ConfigError(
                "unknown truncation", expected=" or ".join(TRUNCATIONS), actual=self.truncation
            )
        lengths = document_lengths(self.split)
        kept = np.flatnonzero(lengths >= self.min_tokens)
        if not len(kept):
            raise ConfigError(
                "no document is long enough to be a row",
                where=self.split.name,
                expected=f">= {self.min_tokens} tokens",
            )
        object.__setattr__(self, "kept", kept)

    @property
    def num_rows(self) -> int:
        """How many documents are rows."""
        return len(self.kept)

    @property
    def settings(self) -> dict[str, object]:
        """What the rows depend on besides the store."""
        return {
            "rows": "episodes",
            "version": VERSION,
            "seq_len": self.seq_len,
            "truncation": self.truncation,
            "min_tokens": self.min_tokens,
        }

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return one document per row."""
        documents = self.kept[rows]
        lengths = self._lengths(documents)
        shown = np.minimum(lengths, self.seq_len + 1)
        starts = lengths - shown if self.truncation == "keep_last" else np.zeros_like(shown)
        offsets = np.arange(len(rows) + 1)
        return document_pieces(self.split, offsets, documents, starts, shown)

    def _lengths(self, documents: np.ndarray) -> np.ndarray:
        _, starts, stops = self.split.locate(documents)
        lengths = stops - starts
        if any(shard.continues for shard in self.split.shards):
            spans = (self.split.document_span(number) for number in documents.tolist())
            lengths = np.array([stop - start for start, stop in spans])
        return lengths

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return the one row of a document, or nothing if it was left out."""
        row = int(np.searchsorted(self.kept, document))
        if row == len(self.kept) or self.kept[row] != document:
            return []
        start, stop = self.split.document_span(document)
        length = stop - start
        shown = min(length, self.seq_len + 1)
        first = length - shown if self.truncation == "keep_last" else 0
        return [(row, first, first + shown)]


def document_lengths(split: Split) -> np.ndarray:
    """Return the number of tokens of each document, int64, shard by shard."""
    parts: list[np.ndarray] = []
    continued = False
    for shard in split.shards:
        starts, stops = shard.documents.bounds(np.arange(len(shard.documents)))
        lengths = stops - starts
        if continued:
            parts[-1][-1] += lengths[0]
            lengths = lengths[1:]
            if not len(lengths):
                continued = shard.continues
                continue
        parts.append(lengths)
        continued = shard.continues
    return np.concatenate(parts)
