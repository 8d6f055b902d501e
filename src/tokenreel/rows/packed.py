"""Many documents a row: planned once, then a table that is looked up.

Documents are cut into segments that fit a row (segments.py) and the segments packed
(packing.py), in blocks of `block_docs` documents that know nothing of each other, so that
several threads plan with the same result. Rows are numbered block after block. Planning
takes about 0.2 s for 10⁶ documents and 300 bytes of memory for each document of a block,
times the threads, whatever the corpus; 32 rows are looked up in about 30 µs.

What is left out is left out here and stands in the ledger (row_ledger.py): documents of fewer
than two tokens, and segments with fewer than `min_trained` trained targets, or one token.
`overlap` are the tokens that `split` shows twice, at the end of one segment and as the first
token of the next.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.packing import MAX_CAPACITY, check_method, pack
from tokenreel.rows.packing import VERSION as PACKING_VERSION
from tokenreel.rows.pieces import Pieces, ragged_index
from tokenreel.rows.plan_cache import PlanCache, load_or_make, plan_cache
from tokenreel.rows.plan_file import impossible_entry
from tokenreel.rows.plan_table import FIRST, TABLE, Table
from tokenreel.rows.ranges import token_pieces
from tokenreel.rows.row_ledger import Ledger, add_counts, close_ledger, count_placed
from tokenreel.rows.row_plan import BY_TABLE, KernelTable, RowKind
from tokenreel.rows.segments import (
    Bounds,
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
MAX_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """The documents of a split, as many to a row of T + 1 tokens as fit.

    `settings` are all that the rows depend on besides the store; `folder` is where the plan lies,
    None if it is in memory alone.
    """

    split: Split
    seq_len: int
    settings: dict[str, object]
    table: Table
    ledger: Ledger
    folder: Path | None

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.table.num_rows

    @property
    def kernel_table(self) -> KernelTable:
        """The columns by which a row finds its pieces."""
        table = self.table
        columns = (table.row_offsets, table.positions, table.lengths, table.flags)
        return KernelTable(lookup=BY_TABLE, columns=columns)

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers."""
        table = self.table
        first, stop = table.row_offsets[rows], table.row_offsets[rows + 1]
        if ((first < 0) | (first >= stop) | (stop > len(table.positions))).any():
            raise impossible_entry(self.folder, "row_offsets")
        if (table.flags[first] != FIRST).any():
            raise impossible_entry(self.folder, "flags")
        index = ragged_index(first, stop - first)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(stop - first)))
        position, length = table.positions[index], table.lengths[index].astype(np.int64)
        shown = np.concatenate((np.zeros(1, np.int64), np.cumsum(length)))[offsets]
        if (length < 1).any() or (np.diff(shown) > self.seq_len + 1).any():
            raise impossible_entry(self.folder, "lengths")
        if ((position < 0) | (position > self.split.num_tokens - length)).any():
            raise impossible_entry(self.folder, "positions")
        return token_pieces(
            self.split,
            offsets,
            position=position,
            length=length,
            document=table.documents[index],
            first=table.flags[index] == FIRST,
        )

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop) for each row that shows tokens start to stop of a document."""
        try:
            numbers = self.table.pieces_of(document)
        except IndexError as error:
            raise impossible_entry(self.folder, "by_document") from error
        if not len(numbers):
            return []
        rows = self.table.row_of(numbers)
        begin, end = self.split.document_span(document)
        starts = self.table.positions[numbers] - begin
        stops = starts + self.table.lengths[numbers]
        if ((rows < 0) | (rows >= self.num_rows)).any():
            raise impossible_entry(self.folder, "row_offsets")
        if ((starts < 0) | (starts >= stops) | (stops > end - begin)).any():
            raise impossible_entry(self.folder, "positions")
        return list(zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What packed rows are planned by, `truncation` decided."""

    seq_len: int
    packing: str
    truncation: str
    block_docs: int
    min_trained: int

    def __post_init__(self) -> None:
        check_method(self.packing)
        for name, least, most in (
            ("seq_len", 1, MAX_CAPACITY - 1),
            ("block_docs", 1, 2**27),
            ("min_trained", 0, MAX_CAPACITY),
        ):
            check_bounds(name, getattr(self, name), least, most)

    @property
    def settings(self) -> dict[str, object]:
        """The same, by the names that identities and plans on disk have for them."""
        return {
            "rows": "packed",
            "version": row_version(VERSION, self.truncation),
            "packing_version": PACKING_VERSION,
            "seq_len": self.seq_len,
            "method": self.packing,
            "truncation": self.truncation,
            "block_docs": self.block_docs,
            "min_trained": self.min_trained,
        }


def plan_packed(
    split: Split,
    seq_len: int,
    *,
    packing: str = "best_fit",
    truncation: str | None = None,
    block_docs: int = 1_000_000,
    min_trained: int = 1,
    cache: PlanCache | None = None,
    threads: int = 0,
) -> Packed:
    """Plan the packed rows of a split, or look the plan up in the cache.

    `truncation` None is whole_turns for a split with turns and split for others. Without a
    `cache` the plan is kept in memory. `threads` 0 is one for each core, up to four.
    """
    check_bounds("threads", threads, 0, 1024)
    wanted = _Wanted(
        seq_len=seq_len,
        packing=packing,
        truncation=choose_truncation(split, truncation),
        block_docs=block_docs,
        min_trained=min_trained,
    )
    # Where a plan cannot be kept, load_or_make would make it in memory: too much of it, here.
    load = partial(load_or_make, None) if cache is None else cache.load
    make = partial(plan_blocks, split, wanted, _plan_block, threads)
    plan = load(split.name, wanted.settings, columns=TABLE, make=make)
    return Packed(
        split=split,
        seq_len=seq_len,
        settings=wanted.settings,
        table=plan.content,
        ledger=plan.ledger,
        folder=plan.folder,
    )


def _plan_of(store: Store, split: Split, seq_len: int, **given: Any) -> Packed:
    return plan_packed(split, seq_len, cache=plan_cache(store), **given)


PACKED = RowKind(
    name="packed",
    meaning="fills each row with whole documents or chats that do not see each other",
    settings=("truncation", "packing"),
    plan=_plan_of,
)


def check_bounds(name: str, value: int, least: int, most: int) -> None:
    """Raise ConfigError unless a setting lies within its bounds."""
    if not least <= value <= most:
        raise ConfigError(f"{name} makes no sense", expected=f"{least:,} to {most:,}", actual=value)


class Blocks(Protocol):
    """The settings by which documents are planned block after block."""

    @property
    def seq_len(self) -> int: ...
    @property
    def block_docs(self) -> int: ...
    @property
    def min_trained(self) -> int: ...


W = TypeVar("W", bound=Blocks)
T = TypeVar("T")


def plan_blocks(
    split: Split,
    wanted: W,
    plan_block: Callable[[Split, W, int, int], tuple[T, Ledger]],
    threads: int,
    ledger: Ledger,
) -> Iterator[T]:
    """Yield what `plan_block` makes of the blocks of documents, in order, and fill the ledger."""
    waiting: deque[Future[tuple[T, Ledger]]] = deque()
    threads = threads or min(os.cpu_count() or 1, MAX_THREADS)
    num_documents = int(split.document_starts[-1])
    with ThreadPoolExecutor(threads, thread_name_prefix="tokenreel-plan") as pool:
        for first in range(0, num_documents, wanted.block_docs):
            stop = min(first + wanted.block_docs, num_documents)
            waiting.append(pool.submit(plan_block, split, wanted, first, stop))
            if len(waiting) > threads:
                yield _taken(waiting, ledger)
        while waiting:
            yield _taken(waiting, ledger)
    if not ledger.get("rows"):
        raise ConfigError(
            "no document can be trained on, so there are no rows",
            where=split.name,
            expected=f"one of >= 2 tokens with >= {wanted.min_trained} trained targets",
            actual=f"{ledger.get('documents', 0):,} documents without"
            + (f", {long:,} of them too long" if (long := ledger.get("long_groups")) else ""),
            remedy="make seq_len larger, or cut them with truncation"
            if long
            else remedy_for_prompts(split),
        )
    close_ledger(ledger, num_tokens=split.num_tokens, seq_len=wanted.seq_len)


def _taken(waiting: deque[Future[tuple[T, Ledger]]], ledger: Ledger) -> T:
    """Return what was made of the block that has waited longest; its counts go to the ledger."""
    made, counts = waiting.popleft().result()
    add_counts(ledger, counts)
    return made


def _plan_block(split: Split, wanted: _Wanted, first: int, stop: int) -> tuple[Table, Ledger]:
    """Return the rows of documents first to stop, and what the ledger counts of them."""
    capacity = wanted.seq_len + 1
    bounds, lengths = document_bounds(split, first, stop)
    cuts = cut(split, bounds, capacity=capacity, truncation=wanted.truncation)
    targets = count_targets(split, cuts, bounds)
    kept = (targets >= wanted.min_trained) & (cuts.num_tokens >= 2)
    segments = cuts.take(kept)
    row_offsets, order = pack(segments.num_tokens, capacity, method=wanted.packing)
    table = _lay_out(row_offsets, order, segments)
    counts = count_placed(segments, bounds, truncation=wanted.truncation)
    counts |= _count_documents(segments, bounds)
    counts["documents"] = len(lengths)
    counts["short_documents"] = len(lengths) - len(bounds.document)
    counts["unfit_documents"] = count_unfit(cuts)
    counts["untrained_documents"] -= counts["unfit_documents"]
    counts["untrained_segments"] = int(np.count_nonzero(~kept)) - counts["unfit_documents"]
    counts["trained"] = int(targets[kept].sum())
    counts["rows"] = table.num_rows
    return table, counts


def _lay_out(row_offsets: np.ndarray, order: np.ndarray, segments: Segments) -> Table:
    """Return the table of rows; `order` says which segment stands where."""
    placed = segments.take(order)
    # A segment is one piece, or two where it has a prefix; segment s is pieces first[s] to last[s].
    counts = 1 + (placed.prefix_length > 0)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    first, last = ends[:-1], ends[1:] - 1
    # Every piece gets the prefix of its segment; then each last piece gets the rest instead.
    positions = np.repeat(placed.prefix_start, counts)
    lengths = np.repeat(placed.prefix_length, counts)
    positions[last], lengths[last] = placed.start, placed.length
    flags = np.zeros(len(positions), np.uint8)
    flags[first] = FIRST
    # Segments came in order of documents: undoing the packing sorts the pieces.
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Table(
        row_offsets=ends[row_offsets],
        documents=np.repeat(placed.document, counts),
        positions=positions,
        lengths=lengths,
        flags=flags,
        by_document=ragged_index(first[rank], counts[rank]),
    )


def _count_documents(segments: Segments, bounds: Bounds) -> Ledger:
    """Count segments, documents that a segment shows only a part of, and those that have none."""
    owners = np.searchsorted(bounds.document, segments.document)
    is_cut = segments.num_tokens < bounds.length[owners]
    num_documents = len(bounds.document)
    return {
        "segments": len(owners),
        "cut_documents": _count_distinct(owners[is_cut], num_documents),
        "untrained_documents": num_documents - _count_distinct(owners, num_documents),
    }


def _count_distinct(numbers: np.ndarray, limit: int) -> int:
    seen = np.zeros(limit, bool)
    seen[numbers] = True
    return int(np.count_nonzero(seen))
