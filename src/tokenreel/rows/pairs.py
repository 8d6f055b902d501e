"""Whole groups of answers a row: pairs, labelled answers, ranked lists (store of `--pairs`).

    row        ├───────── group 7 ─────────┤├─────── group 2 ───────┤├ padding ┤
    segment    │ 1: preferred │ 2: rejected ││ 3: preferred │ 4: …   │    0
    document   │      7       │      7      ││      2       │    2   │

An answer is a segment, its prompt and itself: attention and positions do not cross it. A group
is never parted, so no rank and no step ever has half of one. Groups are packed like documents
(packed.py, packing.py), with the same table and the same kernel; `labels` is one column more.

What does not fit is left out with its group and counted: `long_groups` have an answer of more
than `answer_tokens`, or more tokens in all than a row has; with `truncation` keep_first or
keep_last each answer is cut instead, to `answer_tokens` (TRL's max_length) and, where the group
is still too long, to the largest length with which all of its answers fit. A group with an answer
of which nothing is trained any more is an untrained document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError, DamageError
from tokenreel.rows.packed import Packed, check_bounds, plan_blocks
from tokenreel.rows.packing import MAX_CAPACITY, check_method, pack
from tokenreel.rows.packing import VERSION as PACKING_VERSION
from tokenreel.rows.pieces import ragged_index
from tokenreel.rows.plan_cache import PlanCache, load_or_make, plan_cache
from tokenreel.rows.plan_file import Arrays, Columns, no_plan
from tokenreel.rows.plan_table import COLUMNS, FIRST, TABLE, Table
from tokenreel.rows.row_ledger import Ledger
from tokenreel.rows.row_plan import Answers, RowKind
from tokenreel.rows.segments import Bounds, Segments, count_targets
from tokenreel.store.split import Split
from tokenreel.store.store import Store
from tokenreel.text.turns import answer_begins, find_bad_answer

VERSION = 1
LEFT_OUT = "leave_out"  # what becomes of a long group where no truncation is given
TRUNCATIONS = (LEFT_OUT, "keep_first", "keep_last")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelledTable:
    """A table whose pieces are answers, and the label of each, uint8 [pieces] (text/turns.py)."""

    table: Table
    labels: np.ndarray

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.table.num_rows


def _parts(blocks: Iterable[LabelledTable]) -> Iterator[Arrays]:
    """Yield the columns of each block, rows and pieces numbered through all blocks before it."""
    labels: list[np.ndarray] = []

    def tables() -> Iterator[Table]:
        for block in blocks:
            labels.append(block.labels)
            yield block.table

    for part in TABLE.parts(tables()):
        yield {**part, "labels": labels.pop()}


def _whole(columns: Arrays, where: Path) -> LabelledTable:
    others = {name: values for name, values in columns.items() if name != "labels"}
    table, labels = TABLE.whole(others, where), columns.get("labels", np.empty(0, np.uint8))
    if len(labels) != len(table.documents):
        counts = {"documents": len(table.documents), "labels": len(labels)}
        raise no_plan(counts, where=where, expected="a label for each piece")
    return LabelledTable(table=table, labels=labels)


LABELLED = Columns(dtypes={**COLUMNS, "labels": np.dtype("u1")}, parts=_parts, whole=_whole)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs(Packed):
    """The groups of a split, as many to a row of T + 1 tokens as fit; labels: uint8 [answers]."""

    labels: np.ndarray

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop), as every plan; answers that are not cut are one stretch."""
        found: list[tuple[int, int, int]] = []
        for row, start, stop in Packed.find(self, document):
            if found and found[-1][::2] == (row, start):
                found[-1] = (row, found[-1][1], stop)
            else:
                found.append((row, start, stop))
        return found

    def answers(self, rows: np.ndarray) -> Answers:
        """Return the answers of the rows with these numbers."""
        table = self.table
        first, stop = table.row_offsets[rows], table.row_offsets[rows + 1]
        index = ragged_index(first, stop - first)
        return Answers(
            row_offsets=np.concatenate((np.zeros(1, np.int64), np.cumsum(stop - first))),
            document=table.documents[index],
            length=table.lengths[index].astype(np.int64),
            label=self.labels[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What rows of groups are planned by."""

    seq_len: int
    packing: str
    truncation: str
    answer_tokens: int
    block_docs: int
    min_trained: int = 1

    def __post_init__(self) -> None:
        check_method(self.packing)
        if self.truncation not in TRUNCATIONS:
            raise ConfigError(
                "answers are not cut so",
                expected="truncation keep_first or keep_last, or none: longer groups are left out",
                actual=self.truncation,
            )
        check_bounds("seq_len", self.seq_len, 1, MAX_CAPACITY - 1)
        check_bounds("answer_tokens", self.answer_tokens, 2, self.seq_len + 1)

    @property
    def settings(self) -> dict[str, object]:
        """The same, by the names that identities and plans on disk have for them."""
        return {
            "rows": "pairs",
            "version": VERSION,
            "packing_version": PACKING_VERSION,
            "seq_len": self.seq_len,
            "method": self.packing,
            "truncation": self.truncation,
            "answer_tokens": self.answer_tokens,
            "block_docs": self.block_docs,
        }


def plan_pairs(
    split: Split,
    seq_len: int,
    *,
    packing: str = "best_fit",
    truncation: str | None = None,
    answer_tokens: int | None = None,
    block_docs: int = 1_000_000,
    cache: PlanCache | None = None,
    threads: int = 0,
) -> Pairs:
    """Plan the rows of a split of groups, or look the plan up in the cache.

    `answer_tokens`: the most tokens of an answer with its prompt. None: what a row has.
    """
    wanted = _Wanted(
        seq_len=seq_len,
        packing=packing,
        truncation=truncation or LEFT_OUT,
        answer_tokens=seq_len + 1 if answer_tokens is None else answer_tokens,
        block_docs=block_docs,
    )
    load = partial(load_or_make, None) if cache is None else cache.load
    make = partial(plan_blocks, split, wanted, _plan_block, threads)
    plan = load(split.name, wanted.settings, columns=LABELLED, make=make)
    return Pairs(
        split=split,
        seq_len=seq_len,
        settings=wanted.settings,
        table=plan.content.table,
        labels=plan.content.labels,
        ledger=plan.ledger,
        folder=plan.folder,
    )


def _plan_of(store: Store, split: Split, seq_len: int, **given: Any) -> Pairs:
    return plan_pairs(split, seq_len, cache=plan_cache(store), **given)


PAIRS = RowKind(
    name="pairs",
    meaning="fills each row with whole groups of answers to one prompt, such as pairs of a "
    "preferred and a rejected one, that do not see each other",
    settings=("truncation", "packing", "answer_tokens"),
    plan=_plan_of,
    shows_groups=True,
)


def _plan_block(
    split: Split, wanted: _Wanted, first: int, stop: int
) -> tuple[LabelledTable, Ledger]:
    """Return the rows of groups first to stop, and what the ledger counts of them."""
    begins, ends = split.document_bounds(first, stop)
    whole, labels = _read_answers(split, begins, ends, first=first)
    cuts, fits = _cut(whole, wanted, num_groups=len(begins))
    bounds = Bounds(document=np.arange(first, stop), begin=begins, length=ends - begins)
    targets = count_targets(split, cuts, bounds)
    # A group is kept if it fits and each of its answers has a target. An answer cut to a single
    # token has none: the token is an input.
    untrained = (targets < wanted.min_trained) | (cuts.length < 2)
    is_trained = np.bincount(whole.document[untrained], minlength=len(begins)) == 0
    is_filled = ends > begins
    kept = is_filled & fits & is_trained
    is_shown = kept[whole.document]
    segments = cuts.take(is_shown)
    table, order = _lay_out(segments, wanted, base=first)
    cut_off = whole.length[is_shown] - segments.length
    counts = {
        "documents": len(begins),
        "groups": int(np.count_nonzero(kept)),
        "short_documents": int(np.count_nonzero(~is_filled)),
        "long_groups": int(np.count_nonzero(is_filled & ~fits)),
        "untrained_documents": int(np.count_nonzero(is_filled & fits & ~is_trained)),
        "cut_documents": len(np.unique(segments.document[cut_off > 0])),
        "segments": len(segments.length),
        "placed": int(segments.length.sum()),
        "overlap": 0,
        "truncated": int(cut_off.sum()),
        "trained": int(targets[is_shown].sum()),
        "rows": table.num_rows,
    }
    return LabelledTable(table=table, labels=labels[is_shown][order]), counts


def _read_answers(
    split: Split, begins: np.ndarray, ends: np.ndarray, *, first: int
) -> tuple[Segments, np.ndarray]:
    """Return the answers of the groups that lie at begins to ends, and their labels.

    The document of an answer is counted from the first of these groups, number `first`.
    """
    turns = split.turns_between(int(begins[0]), int(ends[-1]))
    starts = turns["start"].astype(np.int64)
    # The last group that begins at or before a turn; empty ones before it begin there too.
    owner = np.searchsorted(begins, starts, side="right") - 1
    bad = find_bad_answer(turns, owner, starts - begins[owner])
    silent = np.setdiff1d(np.flatnonzero(ends > begins), owner)
    if bad is not None or len(silent):
        number = first + int(owner[bad] if bad is not None else silent[0])
        raise DamageError(
            f"the turns of document {number:,} make no group of answers",
            where=split.name,
            remedy='run "tokenreel verify"',
        )
    at = answer_begins(turns, owner)
    document, start = owner[at], starts[at]
    # An answer ends where the next begins: the next of its group, or that of the next group.
    stop = np.append(start[1:], ends[-1:])
    stop = np.minimum(stop, ends[document])
    segments = Segments(
        document=document,
        start=start,
        length=stop - start,
        prefix_start=start,
        prefix_length=np.zeros_like(start),
    )
    return segments, turns["label"][at]


def _cut(whole: Segments, wanted: _Wanted, *, num_groups: int) -> tuple[Segments, np.ndarray]:
    """Return the answers as they are shown, and which groups fit into a row, bool [groups]."""
    capacity = wanted.seq_len + 1
    length = whole.length
    if wanted.truncation == LEFT_OUT:
        # How many answers of each group are too long alone, and its tokens in all, [groups].
        too_long = np.bincount(whole.document[length > wanted.answer_tokens], minlength=num_groups)
        totals = np.bincount(whole.document, weights=length, minlength=num_groups)
        return whole, (too_long == 0) & (totals <= capacity)
    length = np.minimum(length, wanted.answer_tokens)
    totals = np.bincount(whole.document, weights=length, minlength=num_groups)
    # Groups that are still too long are few: a loop over them, each a slice of the answers.
    for group in np.flatnonzero(totals > capacity).tolist():
        mine = slice(*np.searchsorted(whole.document, (group, group + 1)))
        length[mine] = np.minimum(length[mine], common_length(length[mine], capacity))
    # What is cut off goes from the front of an answer, prompt first, or from its end.
    moved = whole.length - length if wanted.truncation == "keep_last" else 0
    start = whole.start + moved
    cuts = replace(whole, start=start, length=length, prefix_start=start)
    return cuts, np.ones(num_groups, bool)


def common_length(lengths: np.ndarray, capacity: int) -> int:
    """Return the largest length to which all can be cut so that together they fit.

    >>> common_length(np.array([3, 20, 30]), 23)
    10
    """
    room = capacity
    for number, length in enumerate(sorted(lengths.tolist())):
        share = room // (len(lengths) - number)
        if length > share:  # so are all that come after it: they have equal shares
            return share
        room -= length
    return capacity


def _lay_out(segments: Segments, wanted: _Wanted, *, base: int) -> tuple[Table, np.ndarray]:
    """Return the table of rows, and which answer each of its pieces is."""
    # The answers of a group stand one after the other: group g is answers first[g] on.
    _, first, counts = np.unique(segments.document, return_index=True, return_counts=True)
    # The tokens of each group, [groups]: differences of running sums over answers.
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(segments.length)))
    totals = ends[first + counts] - ends[first]
    # The groups in the order of rows, and which of them each row begins with.
    row_offsets, groups = pack(totals, wanted.seq_len + 1, method=wanted.packing)
    # The same in answers: order[i] is the answer that is piece i; pieces[g] the first of group g.
    order = ragged_index(first[groups], counts[groups])
    pieces = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts[groups])))
    # And the way back: rank[a] is the piece that shows answer a.
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    table = Table(
        row_offsets=pieces[row_offsets],
        documents=segments.document[order] + base,
        positions=segments.start[order],
        lengths=segments.length[order],
        flags=np.full(len(order), FIRST, np.uint8),
        by_document=rank,
    )
    return table, order
