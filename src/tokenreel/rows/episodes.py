"""One document or chat per row, padded; what is too long is cut.

keep_first keeps the first T + 1 tokens, keep_last the last, whole_turns the system turn
and the last whole turns of a chat, split makes several rows (segments.py). Documents of
fewer than `min_tokens` tokens, and what has no trained target after the cut, are left
out when the rows are planned. That reads the document index and, where there are some,
turns or stored weights; no token. It takes 20 bytes of memory for each row, 32 where
whole_turns cuts. The ledger holds to

    placed + truncated + dropped  =  tokens of the split
    placed + overlap + padding    =  slots  =  rows · (T + 1)
    trained + masked              =  placed + overlap

where `overlap` are the tokens that `split` shows twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.segments import (
    Segments,
    choose_truncation,
    count_targets,
    cut,
    document_bounds,
)
from tokenreel.rows.whole import token_pieces
from tokenreel.store.split import Split

VERSION = 1
DOCUMENTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episodes:
    """The documents of a split, one a row.

    `truncation` None is whole_turns for a split with turns and keep_first for others.
    """

    split: Split
    seq_len: int
    truncation: str | None = None
    min_tokens: int = 2
    segments: Segments = field(init=False)
    ledger: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        truncation = self.truncation
        if truncation is None and not self.split.has_turns:
            truncation = "keep_first"
        object.__setattr__(self, "truncation", choose_truncation(self.split, truncation))
        segments, ledger = self._plan()
        object.__setattr__(self, "segments", segments)
        object.__setattr__(self, "ledger", ledger)

    def _plan(self) -> tuple[Segments, dict[str, int]]:
        num_documents = int(self.split.document_starts[-1])
        blocks, totals = [], np.zeros(5, np.int64)
        for first in range(0, num_documents, DOCUMENTS_AT_ONCE):
            stop = min(first + DOCUMENTS_AT_ONCE, num_documents)
            segments, counts = self._plan_block(first, stop)
            blocks.append(segments)
            totals += counts
        if not any(len(block.document) for block in blocks):
            raise ConfigError(
                "no document can be trained on, so there are no rows",
                where=self.split.name,
                expected=f"one of >= {max(self.min_tokens, 2)} tokens with a trained target",
                actual=f"{num_documents:,} documents without",
            )
        return _joined(blocks), self._account(*totals.tolist())

    def _plan_block(self, first: int, stop: int) -> tuple[Segments, np.ndarray]:
        """Return the rows of documents first to stop, and what `_account` is to add up."""
        bounds, _ = document_bounds(self.split, first, stop)
        cuts = cut(self.split, bounds, capacity=self.seq_len + 1, truncation=str(self.truncation))
        owner = np.searchsorted(bounds.document, cuts.document)
        targets = count_targets(self.split, cuts, bounds)
        kept = (targets > 0) & (bounds.length[owner] >= self.min_tokens)
        rows, owner = cuts.take(kept), owner[kept]
        follows = rows.document[1:] == rows.document[:-1]
        touches = rows.start[1:] < rows.start[:-1] + rows.length[:-1]
        overlap = np.count_nonzero(follows & touches)
        truncated = 0
        if self.truncation != "split":
            truncated = (bounds.length[owner] - rows.num_tokens).sum()
        shown, trained = rows.num_tokens.sum(), targets[kept].sum()
        return rows, np.array([len(owner), shown, overlap, truncated, trained], np.int64)

    def _account(
        self, rows: int, shown: int, overlap: int, truncated: int, trained: int
    ) -> dict[str, int]:
        """Return the ledger of an epoch."""
        tokens, slots = self.split.num_tokens, rows * (self.seq_len + 1)
        return {
            "tokens": tokens,
            "rows": rows,
            "placed": shown - overlap,
            "overlap": overlap,
            "truncated": truncated,
            # Tokens that belong to no document are never shown either.
            "dropped": tokens - (shown - overlap) - truncated,
            "trained": trained,
            "masked": shown - trained,
            "slots": slots,
            "padding": slots - shown,
        }

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.segments.document)

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
        """Return the pieces of the rows with these numbers."""
        chosen = self.segments.take(rows)
        prefixes = chosen.prefix_length
        counts = 1 + (prefixes > 0)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        position, length = np.repeat(chosen.prefix_start, counts), np.repeat(prefixes, counts)
        last = offsets[1:] - 1
        position[last], length[last] = chosen.start, chosen.length
        # What follows a prefix goes on with its segment.
        first = np.zeros(len(position), bool)
        first[offsets[:-1]] = True
        return token_pieces(
            self.split,
            offsets,
            position=position,
            length=length.astype(np.int64),
            document=np.repeat(chosen.document, counts),
            first=first,
        )

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop) for each row that shows tokens start to stop of a document."""
        rows = slice(*np.searchsorted(self.segments.document, (document, document + 1)))
        parts = self.segments.take(np.arange(rows.start, rows.stop))
        begin, _ = self.split.document_span(document)
        found = []
        for i, row in enumerate(range(rows.start, rows.stop)):
            for start, length in (
                (parts.prefix_start[i], parts.prefix_length[i]),
                (parts.start[i], parts.length[i]),
            ):
                if length:
                    found.append((row, int(start) - begin, int(start) + int(length) - begin))
        return found


def _joined(blocks: list[Segments]) -> Segments:
    """Return all blocks as one, lengths in 4 bytes; without a prefix, no memory for any."""
    columns = {
        item.name: np.concatenate([getattr(block, item.name) for block in blocks])
        for item in fields(Segments)
    }
    columns["length"] = columns["length"].astype(np.uint32)
    columns["prefix_length"] = columns["prefix_length"].astype(np.uint32)
    if not columns["prefix_length"].any():
        for name in ("prefix_start", "prefix_length"):
            columns[name] = np.broadcast_to(columns[name][:1], columns[name].shape)
    return Segments(**columns)
