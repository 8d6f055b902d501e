"""One document or chat per row, padded; what is too long is cut.

keep_first keeps the first T + 1 tokens, keep_last the last, whole_turns the system turn
and the last whole turns of a chat, split makes several rows (segments.py). Documents of
fewer than `min_tokens` tokens, and what has no trained target after the cut, are left
out when the rows are planned. That reads the document index and, where there are some,
turns or stored weights; no token. It is done once: the plan is kept in the cache, 20 bytes
for each row, 32 where whole_turns cuts, and mapped. The ledger holds to

    placed + truncated + dropped  =  tokens of the split
    placed + overlap + padding    =  slots  =  rows · (T + 1)
    trained + masked              =  placed + overlap

where `overlap` are the tokens that `split` shows twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.columns import Arrays, Columns, check_equal_lengths, leads_nowhere
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.plan_cache import PlanCache, load_or_make
from tokenreel.rows.plan_file import Ledger
from tokenreel.rows.ranges import token_pieces
from tokenreel.rows.segments import (
    Segments,
    choose_truncation,
    count_targets,
    cut,
    document_bounds,
)
from tokenreel.store.split import Split

VERSION = 1
DOCUMENTS_AT_ONCE = 1 << 20
PREFIX = ("prefix_start", "prefix_length")


def _parts(blocks: Iterable[Segments]) -> Iterator[Arrays]:
    """Yield the columns of the rows; those of prefixes only if some row has one."""
    num_rows, has_prefix = 0, False
    for block in blocks:
        if not has_prefix and block.prefix_length.any():
            has_prefix = True
            yield dict.fromkeys(PREFIX, np.zeros(num_rows, np.int64))  # of the blocks before
        names = [name for name in EPISODES.dtypes if has_prefix or name not in PREFIX]
        yield {name: getattr(block, name) for name in names}
        num_rows += len(block.document)


def _segments(columns: Arrays, where: Path) -> Segments:
    """Return the rows; where none has a prefix, no memory for any."""
    has_prefix = any(name in columns for name in PREFIX)
    names = [name for name in EPISODES.dtypes if has_prefix or name not in PREFIX]
    check_equal_lengths(columns, names, where=where)
    shape = columns["document"].shape
    nothing = {name: np.broadcast_to(np.zeros(1, EPISODES.dtypes[name]), shape) for name in PREFIX}
    return Segments(**{**nothing, **columns})


EPISODES = Columns(
    dtypes={
        "document": np.dtype("<i8"),
        "start": np.dtype("<i8"),
        "length": np.dtype("<u4"),
        "prefix_start": np.dtype("<i8"),
        "prefix_length": np.dtype("<u4"),
    },
    parts=_parts,
    whole=_segments,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episodes:
    """The documents of a split, one a row.

    `truncation` None is whole_turns for a split with turns and keep_first for others. Without
    a `cache` the plan is kept in memory; else `folder` is where it lies.
    """

    split: Split
    seq_len: int
    truncation: str | None = None
    min_tokens: int = 2
    cache: PlanCache | None = None
    segments: Segments = field(init=False)
    ledger: Ledger = field(init=False)
    folder: Path | None = field(init=False)

    def __post_init__(self) -> None:
        truncation = self.truncation
        if truncation is None and not self.split.has_turns:
            truncation = "keep_first"
        object.__setattr__(self, "truncation", choose_truncation(self.split, truncation))
        name, settings = self.split.name, self.settings
        plan = load_or_make(self.cache, name, settings, columns=EPISODES, make=self._plan)
        object.__setattr__(self, "segments", plan.content)
        object.__setattr__(self, "ledger", plan.ledger)
        object.__setattr__(self, "folder", plan.folder)

    def _plan(self, ledger: Ledger) -> Iterator[Segments]:
        """Yield the rows block by block and fill the ledger."""
        num_documents = int(self.split.document_starts[-1])
        totals = np.zeros(5, np.int64)
        for first in range(0, num_documents, DOCUMENTS_AT_ONCE):
            stop = min(first + DOCUMENTS_AT_ONCE, num_documents)
            segments, counts = self._plan_block(first, stop)
            totals += counts
            yield segments
        if not totals[0]:
            raise ConfigError(
                "no document can be trained on, so there are no rows",
                where=self.split.name,
                expected=f"one of >= {max(self.min_tokens, 2)} tokens with a trained target",
                actual=f"{num_documents:,} documents without",
            )
        ledger.update(self._account(*totals.tolist()))

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

    def _account(self, rows: int, shown: int, overlap: int, truncated: int, trained: int) -> Ledger:
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
        chosen = self._take(rows)
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

    def _take(self, rows: np.ndarray) -> Segments:
        """Return the rows with these numbers, or raise DamageError if there is no such place."""
        chosen, num_tokens = self.segments.take(rows), self.split.num_tokens
        length, prefix = chosen.length.astype(np.int64), chosen.prefix_length.astype(np.int64)
        for name, start, count in (
            ("start", chosen.start, length),
            ("prefix_start", chosen.prefix_start, prefix),
        ):
            if ((start < 0) | (start > num_tokens - count)).any():
                raise leads_nowhere(self.folder, name)
        if ((length < 1) | (length + prefix > self.seq_len + 1)).any():
            raise leads_nowhere(self.folder, "length")
        return chosen

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop) for each row that shows tokens start to stop of a document."""
        rows = range(*np.searchsorted(self.segments.document, (document, document + 1)).tolist())
        parts = self._take(np.arange(rows.start, rows.stop))
        begin, end = self.split.document_span(document)
        found = []
        for i, row in enumerate(rows):
            for start, length in (
                (parts.prefix_start[i], parts.prefix_length[i]),
                (parts.start[i], parts.length[i]),
            ):
                if length:
                    found.append((row, int(start) - begin, int(start) + int(length) - begin))
        if any(start < 0 or stop > end - begin for _, start, stop in found):
            raise leads_nowhere(self.folder, "document")
        return found
