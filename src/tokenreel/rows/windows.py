"""Windows over the token stream of a split: closed form, no index.

Row i is tokens i·T to i·T + T, so that the last label of a row is the first input of
the next and no transition is lost; the last row is padded. Windows run across shards.
With `by_document` a document's border inside a window begins a new segment.

Windows without a trained target are left out, which only turns, stored weights and
document borders can cause (untrained.py says what finding them costs); where there are
some, 8 bytes of memory for each window that is kept. The ledger holds to

    placed + truncated + dropped  =  tokens of the split
    placed + overlap + padding    =  slots  =  rows · (T + 1)
    trained + masked              =  placed + overlap

where `overlap` are the tokens shown twice, as the last of one window and the first of
the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.untrained import count_row_targets, survey_documents
from tokenreel.rows.whole import token_pieces
from tokenreel.store.split import Split

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """The rows of a split as windows of `seq_len` inputs.

    `kept`: the windows that are rows, int64 [num_rows]; None where all are.
    """

    split: Split
    seq_len: int
    by_document: bool = False
    kept: np.ndarray | None = field(init=False)
    ledger: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        if self.split.num_tokens < 2:
            raise ConfigError(
                "too few tokens for a window",
                where=self.split.name,
                expected=">= 2",
                actual=self.split.num_tokens,
            )
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
        object.__setattr__(self, "kept", kept)
        object.__setattr__(self, "ledger", self._account(trained))

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

    def _account(self, trained: int) -> dict[str, int]:
        """Return the ledger of an epoch."""
        tokens, dropped_windows = self.split.num_tokens, self.num_windows - self.num_rows
        shown, overlap = tokens + self.num_windows - 1, self.num_windows - 1
        if self.kept is not None:
            starts = self.kept * self.seq_len
            shown = int(np.minimum(tokens - starts, self.seq_len + 1).sum())
            overlap = int(np.count_nonzero(np.diff(self.kept) == 1))
        slots = self.num_rows * (self.seq_len + 1)
        return {
            "tokens": tokens,
            "rows": self.num_rows,
            "untrained_rows": dropped_windows,
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
        return self._windows(rows if self.kept is None else self.kept[rows])

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
