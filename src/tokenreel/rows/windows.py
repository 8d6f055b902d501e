"""Windows over the token stream of a split: closed form, or a column of those that are kept.

Row i is tokens i·T to i·T + T, so that the last label of a row is the first input of
the next and no transition is lost; the last row is padded. Windows run across shards.
With `by_document` a document's border inside a window begins a new segment.

Windows without a trained target are left out, which only turns, stored weights and
document borders can cause. Where there are such, finding them out is a plan (untrained.py
says what it costs) that is made once and kept in the cache: the ledger and, if some window
is left out, 8 bytes for each that is not, mapped. Otherwise nothing is read or written. The
ledger holds to

    placed + truncated + dropped  =  tokens of the split
    placed + overlap + padding    =  slots  =  rows · (T + 1)
    trained + masked              =  placed + overlap

where `overlap` are the tokens shown twice, as the last of one window and the first of
the next.
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
from tokenreel.rows.untrained import count_row_targets, needs_survey, survey_documents
from tokenreel.store.split import Split

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

    `kept`: the windows that are rows, int64 [num_rows]; None where all are. Without a `cache`
    they are found in memory, each time; else `folder` is where they lie.
    """

    split: Split
    seq_len: int
    by_document: bool = False
    cache: PlanCache | None = None
    kept: np.ndarray | None = field(init=False)
    ledger: Ledger = field(init=False)
    folder: Path | None = field(init=False)

    def __post_init__(self) -> None:
        if self.split.num_tokens < 2:
            raise ConfigError(
                "too few tokens for a window",
                where=self.split.name,
                expected=">= 2",
                actual=self.split.num_tokens,
            )
        surveyed = needs_survey(self.split, by_document=self.by_document)
        cache = self.cache if surveyed else None
        name, settings = self.split.name, self.settings
        plan = load_or_make(cache, name, settings, columns=KEPT, make=self._plan)
        object.__setattr__(self, "kept", plan.content)
        object.__setattr__(self, "ledger", plan.ledger)
        object.__setattr__(self, "folder", plan.folder)

    def _plan(self, ledger: Ledger) -> Iterator[np.ndarray | None]:
        """Yield the windows that are kept, None if all are, and fill the ledger."""
        targets, trained = self._survey()
        kept = None
        if targets is not None and not targets.all():
            kept = np.flatnonzero(targets)
            if not len(kept):
                raise ConfigError(
                    "no window has a trained target, so there are no rows",
                    where=self.split.name,
                    actual=f"{self.num_windows:,} windows without",
                    remedy="look at the turns or weights of the store: nothing in it is trained",
                )
        ledger.update(self._account(kept, trained))
        yield kept

    @property
    def is_plain(self) -> bool:
        """Whether rows are nothing but tokens: no segments, no weights, none left out."""
        weighed = self.split.has_turns or self.split.has_weights
        mapped = all(shard.mode == "mmap" for shard in self.split.shards)
        return mapped and not (weighed or self.by_document) and self.kept is None

    def _survey(self) -> tuple[np.ndarray | None, int]:
        """Return the trained targets of each window, None where all have some, and their sum."""
        weighed = self.split.has_turns or self.split.has_weights
        trained = self.split.num_tokens - 1
        if self.by_document:
            num_filled, run = survey_documents(self.split)
            trained = self.split.num_tokens - num_filled
            # T borders in a row need a run of one-token documents; the last window has fewer slots.
            weighed = weighed or run >= self.seq_len - 1 or self._ends_untrained()
        if not weighed:
            return None, trained
        targets = count_row_targets(
            self.split, self._windows, num_rows=self.num_windows, seq_len=self.seq_len
        )
        return targets, int(targets.sum(dtype=np.int64))

    def _ends_untrained(self) -> bool:
        return bool((self._windows(np.array([self.num_windows - 1])).length == 1).all())

    def _account(self, kept: np.ndarray | None, trained: int) -> Ledger:
        """Return the ledger of an epoch."""
        tokens, num_rows = self.split.num_tokens, self.num_windows
        shown, overlap = tokens + num_rows - 1, num_rows - 1
        if kept is not None:
            num_rows = len(kept)
            starts = kept * self.seq_len
            shown = int(np.minimum(tokens - starts, self.seq_len + 1).sum())
            overlap = int(np.count_nonzero(np.diff(kept) == 1))
        slots = num_rows * (self.seq_len + 1)
        return {
            "tokens": tokens,
            "rows": num_rows,
            "untrained_rows": self.num_windows - num_rows,
            "placed": shown - overlap,
            "overlap": overlap,
            "truncated": 0,
            "dropped": tokens - (shown - overlap),
            "trained": trained,
            "masked": shown - trained,
            "slots": slots,
            "padding": slots - shown,
        }

    @property
    def num_windows(self) -> int:
        """How many windows the tokens make, kept or not."""
        return -(-(self.split.num_tokens - 1) // self.seq_len)

    @property
    def num_rows(self) -> int:
        """How many windows are rows."""
        return self.num_windows if self.kept is None else len(self.kept)

    @property
    def settings(self) -> dict[str, object]:
        """What the rows depend on besides the store."""
        kind = "document_windows" if self.by_document else "windows"
        return {"rows": kind, "version": VERSION, "seq_len": self.seq_len}

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers."""
        if self.kept is None:
            return self._windows(rows)
        numbers = self.kept[rows]
        if ((numbers < 0) | (numbers >= self.num_windows)).any():
            raise leads_nowhere(self.folder, "kept")
        return self._windows(numbers)

    def _windows(self, numbers: np.ndarray) -> Pieces:
        starts = numbers.astype(np.int64) * self.seq_len
        by_shard = token_pieces(
            self.split,
            np.arange(len(starts) + 1),
            position=starts,
            length=np.minimum(self.seq_len + 1, self.split.num_tokens - starts),
            document=np.full(len(starts), -1),
            first=np.ones(len(starts), bool),
        )
        return cut_at_documents(self.split, by_shard) if self.by_document else by_shard

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
                raise leads_nowhere(self.folder, "kept")
        begin = np.maximum(numbers * self.seq_len, first) - first
        end = np.minimum(numbers * self.seq_len + self.seq_len + 1, last) - first
        return list(zip(rows.tolist(), begin.tolist(), end.tolist(), strict=True))


def cut_at_documents(split: Split, pieces: Pieces) -> Pieces:
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
    if not parts:
        return pieces
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
