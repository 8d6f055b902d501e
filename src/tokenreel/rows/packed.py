"""Many documents a row: planned once, then a table that is looked up.

Documents are cut into segments that fit a row (segments.py) and the segments packed
(packing.py), in blocks of `block_docs` documents that know nothing of each other, so that
several threads plan with the same result. Rows are numbered block after block. Planning
takes about 0.2 s for 10⁶ documents and 300 bytes of memory for each document of a block,
times the threads, whatever the corpus; 32 rows are looked up in about 30 µs.

What is left out is left out here and stands in the ledger: documents of fewer than two
tokens, and segments with fewer than `min_trained` trained targets, or one token. So

    placed + truncated + dropped  =  tokens of the split
    placed + overlap + padding    =  slots  =  rows · (T + 1)
    trained + masked              =  placed + overlap

where `overlap` are the tokens that `split` shows twice, at the end of one segment and
as the first token of the next.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.columns import leads_nowhere
from tokenreel.rows.packing import MAX_CAPACITY, check_method, pack
from tokenreel.rows.packing import VERSION as PACKING_VERSION
from tokenreel.rows.pieces import Pieces, ragged_index
from tokenreel.rows.plan_cache import PlanCache
from tokenreel.rows.plan_file import Ledger, Plan
from tokenreel.rows.plan_table import FIRST, TABLE, Table
from tokenreel.rows.ranges import token_pieces
from tokenreel.rows.segments import (
    Bounds,
    Segments,
    choose_truncation,
    count_targets,
    cut,
    document_bounds,
)
from tokenreel.store.split import Split

VERSION = 1
MAX_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """The documents of a split, as many to a row of T + 1 tokens as fit.

    `truncation` None is whole_turns for a split with turns and split for others. Without a
    `cache` the plan is kept in memory; else `folder` is where it lies. `threads` 0 is one for
    each core, up to four.
    """

    split: Split
    seq_len: int
    method: str = "best_fit"
    truncation: str | None = None
    block_docs: int = 1_000_000
    min_trained: int = 1
    cache: PlanCache | None = None
    threads: int = 0
    table: Table = field(init=False)
    ledger: Ledger = field(init=False)
    folder: Path | None = field(init=False)

    def __post_init__(self) -> None:
        check_method(self.method)
        for name, least, most in (
            ("seq_len", 1, MAX_CAPACITY - 1),
            ("block_docs", 1, 2**27),
            ("min_trained", 0, MAX_CAPACITY),
            ("threads", 0, 1024),
        ):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(
                    f"{name} makes no sense",
                    expected=f"{least:,} to {most:,}",
                    actual=getattr(self, name),
                )
        object.__setattr__(self, "truncation", choose_truncation(self.split, self.truncation))
        plan = self._load()
        object.__setattr__(self, "table", plan.content)
        object.__setattr__(self, "ledger", plan.ledger)
        object.__setattr__(self, "folder", plan.folder)

    def _load(self) -> Plan[Table]:
        if self.cache is not None:
            name, settings = self.split.name, self.settings
            return self.cache.load(name, settings, columns=TABLE, make=self._plan)
        ledger: Ledger = {}
        return Plan(content=TABLE.join(self._plan(ledger)), ledger=ledger, folder=None)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.table.num_rows

    @property
    def settings(self) -> dict[str, object]:
        """What the rows depend on besides the store."""
        return {
            "rows": "packed",
            "version": VERSION,
            "packing_version": PACKING_VERSION,
            "seq_len": self.seq_len,
            "method": self.method,
            "truncation": self.truncation,
            "block_docs": self.block_docs,
            "min_trained": self.min_trained,
        }

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers."""
        table = self.table
        first, stop = table.row_offsets[rows], table.row_offsets[rows + 1]
        if ((first < 0) | (first >= stop) | (stop > len(table.positions))).any():
            raise leads_nowhere(self.folder, "row_offsets")
        if (table.flags[first] != FIRST).any():
            raise leads_nowhere(self.folder, "flags")
        index = ragged_index(first, stop - first)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(stop - first)))
        position, length = table.positions[index], table.lengths[index].astype(np.int64)
        shown = np.concatenate((np.zeros(1, np.int64), np.cumsum(length)))[offsets]
        if (length < 1).any() or (np.diff(shown) > self.seq_len + 1).any():
            raise leads_nowhere(self.folder, "lengths")
        if ((position < 0) | (position > self.split.num_tokens - length)).any():
            raise leads_nowhere(self.folder, "positions")
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
            raise leads_nowhere(self.folder, "by_document") from error
        if not len(numbers):
            return []
        rows = self.table.row_of(numbers)
        begin, end = self.split.document_span(document)
        starts = self.table.positions[numbers] - begin
        stops = starts + self.table.lengths[numbers]
        if ((rows < 0) | (rows >= self.num_rows)).any():
            raise leads_nowhere(self.folder, "row_offsets")
        if ((starts < 0) | (starts >= stops) | (stops > end - begin)).any():
            raise leads_nowhere(self.folder, "positions")
        return list(zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True))

    def _plan(self, ledger: Ledger) -> Iterator[Table]:
        """Yield the blocks in order and add up the ledger."""
        num_documents = int(self.split.document_starts[-1])
        for table, counts in self._plan_blocks(num_documents):
            for name, count in counts.items():
                ledger[name] = ledger.get(name, 0) + count
            yield table
        self._close(ledger)

    def _plan_blocks(self, num_documents: int) -> Iterator[tuple[Table, Ledger]]:
        threads = self.threads or min(os.cpu_count() or 1, MAX_THREADS)
        waiting: deque[Future[tuple[Table, Ledger]]] = deque()
        with ThreadPoolExecutor(threads, thread_name_prefix="tokenreel-plan") as pool:
            for first in range(0, num_documents, self.block_docs):
                stop = min(first + self.block_docs, num_documents)
                waiting.append(pool.submit(self._plan_block, first, stop))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _plan_block(self, first: int, stop: int) -> tuple[Table, Ledger]:
        capacity = self.seq_len + 1
        bounds, lengths = document_bounds(self.split, first, stop)
        cuts = cut(self.split, bounds, capacity=capacity, truncation=str(self.truncation))
        targets = count_targets(self.split, cuts, bounds)
        kept = (targets >= self.min_trained) & (cuts.num_tokens >= 2)
        segments = cuts.take(kept)
        row_offsets, order = pack(segments.num_tokens, capacity, method=self.method)
        table = _lay_out(row_offsets, order, segments)
        ledger = _account(segments, bounds, truncation=str(self.truncation))
        ledger["documents"] = len(lengths)
        ledger["short_documents"] = len(lengths) - len(bounds.document)
        ledger["untrained_segments"] = int(np.count_nonzero(~kept))
        ledger["trained"] = int(targets[kept].sum())
        ledger["rows"] = table.num_rows
        return table, ledger

    def _close(self, ledger: Ledger) -> None:
        """Add what only the whole plan knows."""
        if not ledger.get("rows"):
            raise ConfigError(
                "no document can be trained on, so there are no rows",
                where=self.split.name,
                expected=f"one of >= 2 tokens with >= {self.min_trained} trained targets",
                actual=f"{ledger.get('documents', 0):,} documents without",
            )
        shown = ledger["placed"] + ledger["overlap"]
        ledger["tokens"] = self.split.num_tokens
        ledger["slots"] = ledger["rows"] * (self.seq_len + 1)
        ledger["masked"] = shown - ledger["trained"]
        ledger["padding"] = ledger["slots"] - shown
        # Tokens that belong to no document are never shown either.
        ledger["dropped"] = ledger["tokens"] - ledger["placed"] - ledger["truncated"]


def _lay_out(row_offsets: np.ndarray, order: np.ndarray, segments: Segments) -> Table:
    """Return the table of rows; `order` says which segment stands where."""
    placed = segments.take(order)
    counts = 1 + (placed.prefix_length > 0)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    first, last = ends[:-1], ends[1:] - 1
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


def _account(segments: Segments, bounds: Bounds, *, truncation: str) -> Ledger:
    """Count what is placed and what is cut off the documents that are placed."""
    lengths = segments.num_tokens
    follows = segments.document[1:] == segments.document[:-1]
    touches = segments.start[1:] < segments.start[:-1] + segments.length[:-1]
    overlap = int(np.count_nonzero(follows & touches))
    owners = np.searchsorted(bounds.document, segments.document)
    missing = bounds.length[owners] - lengths
    return {
        "segments": len(lengths),
        "placed": int(lengths.sum()) - overlap,
        "overlap": overlap,
        "truncated": 0 if truncation == "split" else int(missing.sum()),
        "cut_documents": _count_distinct(owners[missing > 0], len(bounds.document)),
        "untrained_documents": len(bounds.document) - _count_distinct(owners, len(bounds.document)),
    }


def _count_distinct(numbers: np.ndarray, limit: int) -> int:
    seen = np.zeros(limit, bool)
    seen[numbers] = True
    return int(np.count_nonzero(seen))
