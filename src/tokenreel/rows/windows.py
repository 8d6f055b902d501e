"""Windows over the tokens of a split: closed form, or a column of those that are kept.

Row i is tokens i·T to i·T + T, so that the last label of a row is the first input of
the next and no transition is lost; the last row is padded. Windows run across shards.
With `by_document` a document's border inside a window begins a new segment.

Windows without a trained target are left out, which only turns, stored weights and
document borders can cause. Where there are such, finding them out is a plan (untrained.py
says what it costs) that is made once and kept in the cache: the ledger and, if some window
is left out, 8 bytes for each that is not, mapped. Otherwise nothing is read or written. In the
ledger (row_ledger.py) `overlap` are the tokens shown twice, as the last of one window and the
first of the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.plan_cache import PlanCache, load_or_make
from tokenreel.rows.plan_file import Arrays, Columns, check_equal_lengths, impossible_entry
from tokenreel.rows.ranges import cut_at_documents, token_pieces
from tokenreel.rows.row_ledger import Ledger, close_ledger
from tokenreel.rows.row_plan import (
    BY_DOCUMENT_WINDOW,
    BY_WINDOW,
    KernelTable,
    RowKind,
    survey_cache,
)
from tokenreel.rows.untrained import (
    count_row_targets,
    needs_survey,
    remedy_for_prompts,
    survey_documents,
)
from tokenreel.store.split import Split
from tokenreel.store.store import Store

VERSION = 1


def _parts(blocks: Iterable[np.ndarray | None]) -> Iterator[Arrays]:
    """Yield the windows that are kept; nothing where all are."""
    yield from ({"kept": block} for block in blocks if block is not None)


def _kept(columns: Arrays, where: Path) -> np.ndarray | None:
    if not columns:
        return None
    check_equal_lengths(columns, KEPT.dtypes, where=where)
    return columns["kept"]


KEPT = Columns(dtypes={"kept": np.dtype("<i8")}, parts=_parts, whole=_kept)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """The rows of a split as windows of `seq_len` inputs.

    `kept`: the windows that are rows, int64 [num_rows]; None where all are. `folder` is where
    that is stored, None if it is in memory alone.
    """

    split: Split
    seq_len: int
    by_document: bool
    kept: np.ndarray | None
    ledger: Ledger
    folder: Path | None

    @property
    def num_windows(self) -> int:
        """How many windows the tokens make, kept or not."""
        return count_windows(self.split, self.seq_len)

    @property
    def num_rows(self) -> int:
        """How many windows are rows."""
        return self.num_windows if self.kept is None else len(self.kept)

    @property
    def settings(self) -> dict[str, object]:
        """What the rows depend on besides the store."""
        return _settings(self.seq_len, by_document=self.by_document)

    @property
    def kernel_table(self) -> KernelTable:
        """The windows that are kept; all else is computed."""
        split = self.split
        is_mapped = all(shard.mode == "mmap" for shard in split.shards)
        is_weighed = split.has_turns or split.has_weights
        return KernelTable(
            lookup=BY_DOCUMENT_WINDOW if self.by_document else BY_WINDOW,
            columns=(self.kept, None, None, None),
            num_windows=self.num_windows,
            is_plain=is_mapped and not (is_weighed or self.by_document) and self.kept is None,
        )

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers."""
        numbers = rows
        if self.kept is not None:
            numbers = self.kept[rows]
            if ((numbers < 0) | (numbers >= self.num_windows)).any():
                raise impossible_entry(self.folder, "kept")
        return _pieces_of(self.split, numbers, self.seq_len, by_document=self.by_document)

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop) for each row that shows tokens start to stop of a document."""
        first, last = self.split.document_span(document)
        if first == last:
            return []
        low = max(first - 1, 0) // self.seq_len
        high = min(-(-last // self.seq_len), self.num_windows)
        numbers = rows = np.arange(low, high)
        if self.kept is not None:
            rows = np.arange(*np.searchsorted(self.kept, (low, high)))
            numbers = self.kept[rows]
            if ((numbers < low) | (numbers >= high)).any():
                raise impossible_entry(self.folder, "kept")
        begin = np.maximum(numbers * self.seq_len, first) - first
        end = np.minimum(numbers * self.seq_len + self.seq_len + 1, last) - first
        return list(zip(rows.tolist(), begin.tolist(), end.tolist(), strict=True))


def plan_windows(
    split: Split, seq_len: int, *, by_document: bool = False, cache: PlanCache | None = None
) -> Windows:
    """Find the windows of a split that have a trained target, or look them up in the cache.

    Without a `cache`, or where it cannot be written, they are found each time, in memory.
    """
    if split.num_tokens < 2:
        raise ConfigError(
            "too few tokens for a window",
            where=split.name,
            expected=">= 2",
            actual=split.num_tokens,
        )
    if not needs_survey(split, by_document=by_document):
        cache = None
    settings = _settings(seq_len, by_document=by_document)
    make = partial(_plan_kept, split, seq_len, by_document)
    plan = load_or_make(cache, split.name, settings, columns=KEPT, make=make)
    return Windows(
        split=split,
        seq_len=seq_len,
        by_document=by_document,
        kept=plan.content,
        ledger=plan.ledger,
        folder=plan.folder,
    )


def _plan_of(store: Store, split: Split, seq_len: int, *, by_document: bool) -> Windows:
    # The fingerprint that a cache needs is found by reading: not for windows of closed form.
    is_surveyed = needs_survey(split, by_document=by_document)
    cache = survey_cache(store) if is_surveyed else None
    return plan_windows(split, seq_len, by_document=by_document, cache=cache)


WINDOWS = RowKind(
    name="windows",
    meaning="cuts the tokens of a split every seq_len, across documents",
    plan=partial(_plan_of, by_document=False),
)
DOCUMENT_WINDOWS = RowKind(
    name="document_windows",
    meaning="does too, but a document does not see the one before",
    plan=partial(_plan_of, by_document=True),
)


def _settings(seq_len: int, *, by_document: bool) -> dict[str, object]:
    kind = DOCUMENT_WINDOWS if by_document else WINDOWS
    return {"rows": kind.name, "version": VERSION, "seq_len": seq_len}


def count_windows(split: Split, seq_len: int) -> int:
    """Return how many windows the tokens of a split make."""
    return -(-(split.num_tokens - 1) // seq_len)


def _plan_kept(
    split: Split, seq_len: int, by_document: bool, ledger: Ledger
) -> Iterator[np.ndarray | None]:
    """Yield the windows that are kept, None if all are, and fill the ledger."""
    targets, trained = _survey(split, seq_len, by_document=by_document)
    num_windows, kept = count_windows(split, seq_len), None
    if targets is not None and not targets.all():
        kept = np.flatnonzero(targets)
        if not len(kept):
            raise ConfigError(
                "no window has a trained target, so there are no rows",
                where=split.name,
                actual=f"{num_windows:,} windows without",
                remedy=remedy_for_prompts(split)
                or "look at the turns or weights of the store: nothing in it is trained",
            )
    ledger.update(_count(split, seq_len, kept), trained=trained)
    ledger["untrained_rows"] = num_windows - ledger["rows"]
    close_ledger(ledger, num_tokens=split.num_tokens, seq_len=seq_len)
    yield kept


def _survey(split: Split, seq_len: int, *, by_document: bool) -> tuple[np.ndarray | None, int]:
    """Return the trained targets of each window, None where all have some, and their sum."""
    is_counted = split.has_turns or split.has_weights
    trained, num_windows = split.num_tokens - 1, count_windows(split, seq_len)
    pieces_of = partial(_pieces_of, split, seq_len=seq_len, by_document=by_document)
    if by_document:
        num_filled, run = survey_documents(split)
        trained = split.num_tokens - num_filled
        # T borders in a row need a run of one-token documents; the last window has fewer slots.
        last = pieces_of(np.array([num_windows - 1]))
        is_counted = is_counted or run >= seq_len - 1 or bool((last.length == 1).all())
    if not is_counted:
        return None, trained
    targets = count_row_targets(split, pieces_of, num_rows=num_windows, seq_len=seq_len)
    return targets, int(targets.sum(dtype=np.int64))


def _count(split: Split, seq_len: int, kept: np.ndarray | None) -> Ledger:
    """Count rows, placed, overlap and truncated of the windows that are kept; None: of all."""
    if kept is None:
        num_rows = count_windows(split, seq_len)
        placed, overlap = split.num_tokens, num_rows - 1
    else:
        num_rows = len(kept)
        shown = int(np.minimum(split.num_tokens - kept * seq_len, seq_len + 1).sum())
        overlap = int(np.count_nonzero(np.diff(kept) == 1))
        placed = shown - overlap
    return {"rows": num_rows, "placed": placed, "overlap": overlap, "truncated": 0}


def _pieces_of(split: Split, numbers: np.ndarray, seq_len: int, *, by_document: bool) -> Pieces:
    """Return the pieces of the windows with these numbers, whether they are rows or not."""
    starts = numbers.astype(np.int64) * seq_len
    by_shard = token_pieces(
        split,
        np.arange(len(starts) + 1),
        position=starts,
        length=np.minimum(seq_len + 1, split.num_tokens - starts),
        document=np.full(len(starts), -1),
        first=np.ones(len(starts), bool),
    )
    return cut_at_documents(split, by_shard) if by_document else by_shard
