"""One document or chat per row, padded; what is too long is cut.

keep_first keeps the first T + 1 tokens, keep_last the last, whole_turns the system turn
and the last whole turns of a chat, split makes several rows (segments.py). Documents of
fewer than `min_tokens` tokens, and what has no trained target after the cut, are left
out when the rows are planned. That reads the document index and, where there are some,
turns or stored weights; no token. It is done once: the plan is kept in the cache, 20 bytes
for each row, 32 where whole_turns cuts, and mapped. In the ledger (row_ledger.py) `overlap` are
the tokens that `split` shows twice, `unfit_documents` the chats that whole_turns drops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.plan_cache import PlanCache, load_or_make
from tokenreel.rows.plan_file import Arrays, Columns, check_equal_lengths, impossible_entry
from tokenreel.rows.ranges import token_pieces
from tokenreel.rows.row_ledger import Ledger, add_counts, close_ledger, count_placed
from tokenreel.rows.row_plan import BY_SEGMENT, KernelTable, RowKind, survey_cache
from tokenreel.rows.segments import (
    Segments,
    choose_truncation,
    count_targets,
    count_unfit,
    cut,
    document_bounds,
    row_version,
)
from tokenreel.rows.untrained import remedy_for_prompts
from tokenreel.store.split import Split
from tokenreel.store.store import Store

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
        names = [name for name in COLUMNS.dtypes if has_prefix or name not in PREFIX]
        yield {name: getattr(block, name) for name in names}
        num_rows += len(block.document)


def _segments(columns: Arrays, where: Path) -> Segments:
    """Return the rows that columns are; where none has a prefix, one zero stands for all."""
    has_prefix = any(name in columns for name in PREFIX)
    names = [name for name in COLUMNS.dtypes if has_prefix or name not in PREFIX]
    check_equal_lengths(columns, names, where=where)
    shape = columns["document"].shape
    nothing = {name: np.broadcast_to(np.zeros(1, COLUMNS.dtypes[name]), shape) for name in PREFIX}
    return Segments(**{**nothing, **columns})


COLUMNS = Columns(
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

    segments: what of its document each row shows. `settings` are all that the rows depend on
    besides the store; `folder` is where the plan lies, None if it is in memory alone.
    """

    split: Split
    seq_len: int
    settings: dict[str, object]
    segments: Segments
    ledger: Ledger
    folder: Path | None

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.segments.document)

    @property
    def kernel_table(self) -> KernelTable:
        """The columns by which a row finds its tokens, those of prefixes if some row has one."""
        rows = self.segments
        has_prefix = rows.prefix_length.strides[0] > 0  # else one zero stands for all rows
        prefix = (rows.prefix_start, rows.prefix_length) if has_prefix else (None, None)
        return KernelTable(lookup=BY_SEGMENT, columns=(rows.start, rows.length, *prefix))

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers."""
        chosen = self._take(rows)
        prefixes = chosen.prefix_length
        # A row is one piece, or two where it has a prefix: row r is pieces offsets[r] to last[r].
        counts = 1 + (prefixes > 0)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        # Every piece gets the prefix of its row; then each last piece gets the rest instead.
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
        """Return the rows with these numbers; DamageError if one lies outside the split."""
        chosen, num_tokens = self.segments.take(rows), self.split.num_tokens
        length, prefix = chosen.length.astype(np.int64), chosen.prefix_length.astype(np.int64)
        for name, start, count in (
            ("start", chosen.start, length),
            ("prefix_start", chosen.prefix_start, prefix),
        ):
            if ((start < 0) | (start > num_tokens - count)).any():
                raise impossible_entry(self.folder, name)
        if ((length < 1) | (length + prefix > self.seq_len + 1)).any():
            raise impossible_entry(self.folder, "length")
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
            raise impossible_entry(self.folder, "document")
        return found


def plan_episodes(
    split: Split,
    seq_len: int,
    *,
    truncation: str | None = None,
    min_tokens: int = 2,
    cache: PlanCache | None = None,
) -> Episodes:
    """Plan rows of one document each, or look the plan up in the cache.

    `truncation` None is whole_turns for a split with turns and keep_first for others. Without
    a `cache`, or where it cannot be written, the plan is kept in memory.
    """
    if truncation is None and not split.has_turns:
        truncation = "keep_first"
    truncation = choose_truncation(split, truncation)
    settings: dict[str, object] = {
        "rows": "episodes",
        "version": row_version(VERSION, truncation),
        "seq_len": seq_len,
        "truncation": truncation,
        "min_tokens": min_tokens,
    }
    make = partial(_plan_blocks, split, seq_len, truncation, min_tokens)
    plan = load_or_make(cache, split.name, settings, columns=COLUMNS, make=make)
    return Episodes(
        split=split,
        seq_len=seq_len,
        settings=settings,
        segments=plan.content,
        ledger=plan.ledger,
        folder=plan.folder,
    )


def _plan_of(store: Store, split: Split, seq_len: int, **given: Any) -> Episodes:
    return plan_episodes(split, seq_len, cache=survey_cache(store), **given)


EPISODES = RowKind(
    name="episodes",
    meaning="has one document or chat a row, padded",
    settings=("truncation", "min_tokens"),
    plan=_plan_of,
)


def _plan_blocks(
    split: Split, seq_len: int, truncation: str, min_tokens: int, ledger: Ledger
) -> Iterator[Segments]:
    """Yield the rows of the blocks in order, and fill the ledger."""
    num_documents = int(split.document_starts[-1])
    for first in range(0, num_documents, DOCUMENTS_AT_ONCE):
        stop = min(first + DOCUMENTS_AT_ONCE, num_documents)
        bounds, _ = document_bounds(split, first, stop)
        cuts = cut(split, bounds, capacity=seq_len + 1, truncation=truncation)
        owner = np.searchsorted(bounds.document, cuts.document)
        targets = count_targets(split, cuts, bounds)
        kept = (targets > 0) & (bounds.length[owner] >= min_tokens)
        rows = cuts.take(kept)
        counts = count_placed(rows, bounds, truncation=truncation)
        counts["unfit_documents"] = count_unfit(cuts)
        trained = int(targets[kept].sum())
        add_counts(ledger, {**counts, "rows": len(rows.document), "trained": trained})
        yield rows
    if not ledger.get("rows"):
        raise ConfigError(
            "no document can be trained on, so there are no rows",
            where=split.name,
            expected=f"one of >= {max(min_tokens, 2)} tokens with a trained target",
            actual=f"{num_documents:,} documents without",
            remedy=remedy_for_prompts(split),
        )
    close_ledger(ledger, num_tokens=split.num_tokens, seq_len=seq_len)
