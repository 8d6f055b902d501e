"""One prompt per row, for a model that answers it; nothing in it is a target.

A prompt has at most T tokens, since the last is an input too: longer ones are left out and
counted, or with keep_last lose their first tokens. Rows are padded on the left, so that all
prompts of a batch end where the answers begin, or on the right. With `repeats` each prompt is
that many rows side by side: rows p · repeats to (p + 1) · repeats, the group whose answers are
compared with each other. order/grouped_order.py keeps a group in one step. A rank, and a
microbatch, has whole groups where its rows are a multiple of `repeats`; else a group lies on two
of them, and its rewards are to be gathered, as examples/grpo_loop.py and TRL do anyway.

Every other kind leaves out rows without a trained target; here there is none, and a split with
one is refused: it would show the model its answers. The plan is made at every start, in memory:
20 bytes and 30 ns a prompt, and a look at the turns. In the ledger (row_ledger.py) `overlap` are
the tokens that are repeated, and `too_long` the prompts left out for their length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError, StoreError
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.ranges import token_pieces
from tokenreel.rows.row_ledger import Ledger, close_ledger
from tokenreel.rows.row_plan import KernelTable, RowKind
from tokenreel.store.split import Split
from tokenreel.store.store import Store
from tokenreel.text.turns import trained_lengths

VERSION = 1
WEIGHTS_AT_ONCE = 1 << 22
BUILD_SO = "build the store with prompts=True; for answers that are trained, use rows of episodes"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompts:
    """The prompts of a split, each `repeats` rows.

    document, start (position in the split), length: int64 [prompts], of what is shown.
    """

    split: Split
    seq_len: int
    settings: dict[str, object]
    repeats: int
    pads_left: bool
    document: np.ndarray
    start: np.ndarray
    length: np.ndarray
    ledger: Ledger
    folder: Path | None = None

    @property
    def num_rows(self) -> int:
        """How many rows there are: prompts times repeats."""
        return len(self.document) * self.repeats

    @property
    def kernel_table(self) -> KernelTable | None:
        """None: rows are made piece by piece, a microsecond or two each."""
        return None

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers."""
        prompts = rows // self.repeats
        length = self.length[prompts]
        pieces = token_pieces(
            self.split,
            np.arange(len(rows) + 1),
            position=self.start[prompts],
            length=length,
            document=self.document[prompts],
            first=np.ones(len(rows), bool),
        )
        return replace(pieces, lead=self.seq_len - length) if self.pads_left else pieces

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop) for each row that shows tokens start to stop of a document."""
        prompt = int(np.searchsorted(self.document, document))
        if prompt == len(self.document) or self.document[prompt] != document:
            return []
        start = int(self.start[prompt]) - self.split.document_span(document)[0]
        rows = range(prompt * self.repeats, (prompt + 1) * self.repeats)
        return [(row, start, start + int(self.length[prompt])) for row in rows]


def plan_prompts(
    split: Split,
    seq_len: int,
    *,
    truncation: str | None = None,
    padding: str = "left",
    repeats: int = 1,
) -> Prompts:
    """Find the prompts of a split that fit into a row."""
    if truncation not in (None, "keep_last"):
        raise ConfigError(
            "prompts are not cut so",
            expected="truncation keep_last, or none: longer prompts are left out",
            actual=truncation,
        )
    _refuse_trained(split)
    begins, ends = split.document_bounds(0, int(split.document_starts[-1]))
    lengths = ends - begins
    is_long = lengths > seq_len
    kept = np.flatnonzero((lengths > 0) & (~is_long | (truncation is not None)))
    if not len(kept):
        raise ConfigError(
            "no prompt fits into a row, so there are no rows",
            where=split.name,
            expected=f"one of 1 to {seq_len:,} tokens",
            actual=f"{int(is_long.sum()):,} longer ones of {len(lengths):,}",
            remedy='make seq_len larger, or cut them with truncation="keep_last"',
        )
    length = np.minimum(lengths[kept], seq_len)
    settings: dict[str, object] = {"rows": PROMPTS.name, "version": VERSION, "seq_len": seq_len}
    return Prompts(
        split=split,
        seq_len=seq_len,
        settings={
            **settings,
            "truncation": truncation,
            "padding": padding,
            "repeats": repeats,
        },
        repeats=repeats,
        pads_left=padding == "left",
        document=kept,
        start=ends[kept] - length,
        length=length,
        ledger=_count(split, seq_len, lengths, kept, repeats),
    )


def _count(
    split: Split, seq_len: int, lengths: np.ndarray, kept: np.ndarray, repeats: int
) -> Ledger:
    """Return the ledger of an epoch; `lengths` are of all documents."""
    placed = int(np.minimum(lengths[kept], seq_len).sum())
    is_long = lengths > seq_len
    ledger = {
        "rows": len(kept) * repeats,
        "placed": placed,
        "overlap": placed * (repeats - 1),
        "truncated": int(lengths[kept].sum()) - placed,
        "trained": 0,
        "too_long": int(is_long.sum()) - int(is_long[kept].sum()),
    }
    close_ledger(ledger, num_tokens=split.num_tokens, seq_len=seq_len)
    return ledger


def _refuse_trained(split: Split) -> None:
    """Raise StoreError for the first shard that has a trained target, so is not of prompts."""
    for shard in split.shards:
        if shard.weight_file is not None:
            blocks = range(0, shard.num_tokens, WEIGHTS_AT_ONCE)
            is_trained = any(
                shard.weight_file.read(at, min(at + WEIGHTS_AT_ONCE, shard.num_tokens)).any()
                for at in blocks
            )
        elif shard.turns is not None:
            is_trained = bool(trained_lengths(shard.turns).any())
        else:
            is_trained = True  # without either every token weighs 1
        if is_trained and shard.num_tokens:
            raise StoreError(
                "the documents have trained targets, so they are not prompts",
                where=shard.token_file.path,
                expected="a store of prompts, in which every token weighs 0",
                remedy=BUILD_SO,
            )


def _plan_of(store: Store, split: Split, seq_len: int, **given: object) -> Prompts:
    return plan_prompts(split, seq_len, **given)  # type: ignore[arg-type]


PROMPTS = RowKind(
    name="prompts",
    meaning="has one prompt a row, padded on the left or the right, each repeats times",
    settings=("truncation", "padding", "repeats"),
    plan=_plan_of,
    has_targets=False,
)
