"""Everything a batch is made from, laid out once for the kernel that makes it in one call.

Plans, shards, turns and weights as two tables of numbers and addresses (layout:
native/native.h). They do not know the weights of sources, so a change of weights keeps
them. A shard is opened when a row first needs it; opening one, letting one go (there may be
more files than the system maps: store/mappings.py) or turning to another epoch makes new
tables and alters none, so threads may share them: a kernel is called with tables that hold
all they point to until it returns. Marks say which
document and which turn is at every 4,096th token of a shard: 8 bytes each, 0.1 % of the
tokens' size, instead of a search that misses the cache at every step.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from tokenreel import native
from tokenreel.feed.buffers import BatchMemory
from tokenreel.order.deal import Deal
from tokenreel.order.mixture import Mixture
from tokenreel.order.order import Order, SourceRows
from tokenreel.order.permutation import ROUNDS, round_keys_of, sides_of
from tokenreel.order.schedule import MAX_TIME
from tokenreel.rows.row_plan import BY_DOCUMENT_WINDOW, KernelTable, RowPlan
from tokenreel.store.document_index import DocumentIndex, Offsets
from tokenreel.store.mappings import MAPPINGS
from tokenreel.store.shard import Shard
from tokenreel.store.split import Split

SOURCE = np.dtype(
    [
        ("lookup", "<i8"),  # of rows in the columns: rows/row_plan.py
        ("num_rows", "<i8"),
        ("limit", "<i8"),  # numbers from here on are of an epoch that is not allowed
        ("epoch", "<i8"),  # of the first of the permutations at hand
        ("shuffled", "<i8"),
        ("first_shard", "<i8"),
        ("num_shards", "<i8"),
        ("bounds", "<i8"),  # address: where shards begin in the split, and the end
        ("token_kind", "<i8"),  # bytes of a token, negative if signed
        ("weighing", "<i8"),
        ("stored_bytes", "<i8"),  # of a stored weight
        ("num_pieces", "<i8"),
        ("num_windows", "<i8"),  # of the split, kept or not
        ("columns", "<i8", (4,)),  # addresses: what rows are looked up in
    ]
)
SHARD = np.dtype(
    [
        ("is_open", "<i8"),
        ("tokens", "<i8"),  # address, as are documents, turns, weights and the marks
        ("documents", "<i8"),
        ("num_documents", "<i8"),
        ("document_marks", "<i8"),
        ("continued", "<i8"),  # its first document began in the shard before
        ("turns", "<i8"),
        ("num_turns", "<i8"),
        ("turn_marks", "<i8"),
        ("weights", "<i8"),
    ]
)
ALL_WEIGH, BY_TURNS, BY_STORED = range(3)
EPOCHS = 2  # permutations at hand: the current epoch and the next
NO_EPOCH, OTHERWISE, PADDED = -1, -2, -3  # what the kernel answers, besides shards to open
MARK_TOKENS = 4096
NO_LIMIT = 2**63 - 1


Arrays = tuple[np.ndarray, ...]


class Snapshot(NamedTuple):
    """Tables as they are at one time; never altered.

    epochs: the table of sources, and their permutations. shards: the table of shards. held:
    by entry of an open shard, the arrays that the table points to. views: all tables as the
    kernels take them.
    """

    epochs: tuple[np.ndarray, np.ndarray]
    shards: np.ndarray
    held: Mapping[int, Arrays]
    views: tuple[bytes | memoryview, ...]


class Tables:
    """What the kernels need to make rows of these plans; orders differ in their weights alone."""

    def __init__(
        self, plans: Sequence[RowPlan], order: Order, *, deal: Deal, seq_len: int, pad_id: int
    ) -> None:
        self._kernels = native.extension()
        self._splits = [plan.split for plan in plans]
        tables = [_table_of(plan) for plan in plans]
        self._by_document = [table.lookup == BY_DOCUMENT_WINDOW for table in tables]
        self._deal = deal
        self._deal_key = b"" if deal.key is None else deal.key.to_bytes(8, sys.byteorder)
        self._seq_len, self._pad_id = seq_len, pad_id
        self._columns: list[np.ndarray] = []  # what the table of sources points to
        self._first_shard = np.cumsum([0, *(len(split.shards) for split in self._splits)])
        sources = np.zeros(len(plans), SOURCE)
        permutations = np.zeros((len(plans), EPOCHS, 2 + ROUNDS), np.uint64)
        for number, (plan, item) in enumerate(zip(plans, order.sources, strict=True)):
            self._describe_source(sources[number], plan, tables[number], item, number)
            permutations[number, :, :2] = sides_of(plan.num_rows)
        shards = np.zeros(self._first_shard[-1], SHARD)
        self._snapshot = self._snapshot_of((sources, permutations), shards, {})

    def _snapshot_of(
        self, epochs: tuple[np.ndarray, np.ndarray], shards: np.ndarray, held: Mapping[int, Arrays]
    ) -> Snapshot:
        # A view is taken faster than an array.
        views = (table.view(np.uint8).data for table in (epochs[0], shards, epochs[1]))
        return Snapshot(epochs, shards, held, (self._deal_key, *views))

    def _describe_source(
        self, source: np.void, plan: RowPlan, table: KernelTable, item: SourceRows, number: int
    ) -> None:
        split = plan.split
        dtype = split.shards[0].token_file.dtype
        source["lookup"] = table.lookup
        source["num_rows"] = plan.num_rows
        limit = NO_LIMIT if item.max_epochs is None else item.max_epochs * plan.num_rows
        source["limit"] = min(limit, NO_LIMIT)
        source["epoch"] = -EPOCHS  # no permutation yet
        source["shuffled"] = item.shuffle
        source["first_shard"], source["num_shards"] = self._first_shard[number], len(split.shards)
        source["bounds"] = _address(split.token_starts, self._columns)
        source["token_kind"] = -dtype.itemsize if dtype.kind == "i" else dtype.itemsize
        source["weighing"], source["stored_bytes"] = _weighing(split)
        source["num_pieces"] = 0 if table.columns[1] is None else len(table.columns[1])
        source["num_windows"] = table.num_windows
        source["columns"] = [
            0 if column is None else _address(column, self._columns) for column in table.columns
        ]

    def fill(
        self,
        order: Order,
        step: int,
        seats: np.ndarray,
        memory: BatchMemory,
        *,
        plain: bool = False,
        threads: int = 1,
    ) -> int:
        """Fill rows with those in seats of a step; return 0, PADDED or OTHERWISE.

        `plain`: inputs, labels and sources alone. `threads` share the work where there is enough.

        PADDED: some row is, and there are no segments to say so. OTHERWISE: the general way
        must do it, or say what is wrong. What was filled is then worth nothing.
        """
        settings = (self._seq_len, self._pad_id, threads)
        more: tuple[np.ndarray | None, ...] = (None,) * 4
        if not plain:
            rows = memory.rows()
            more = (rows.segment_ids, rows.position_ids, rows.loss_weights, memory.mask)
        arrays = (memory.input_ids, memory.labels, *more, memory.source_ids)
        return self._call("assemble", order, step, seats, *settings, *arrays)

    def announce(self, order: Order, step: int, seats: np.ndarray) -> None:
        """Have the system read the pages of the rows in seats of a step, without waiting."""
        self._call("announce", order, step, seats, self._seq_len)

    def weigh(
        self, order: Order, step: int, seats: np.ndarray, weights: np.ndarray, samples: np.ndarray
    ) -> int:
        """Put the sum of weights (float64) and the samples (int64) of each row into arrays."""
        return self._call("weigh", order, step, seats, self._seq_len, weights, samples)

    def _call(self, name: str, order: Order, step: int, seats: np.ndarray, *args: object) -> int:
        """Call a kernel, open what shards it asks for, turn to the epoch it needs."""
        start, num_rows = step * self._deal.batch_size, self._deal.num_rows_in(step)
        era = order.era(start)
        local = start - era.start
        if not isinstance(era.mixture, Mixture) or local + num_rows > MAX_TIME:
            return OTHERWISE
        kernel, turned = getattr(self._kernels, name), False
        snapshot = self._snapshot
        needed: frozenset[int] = frozenset()
        while True:
            views = (*snapshot.views, *era.mixture.tables)
            answer: int | tuple[int, ...] = kernel(local, step, num_rows, seats, *views, *args)
            if isinstance(answer, tuple):
                needed = needed.union(answer)
                snapshot = self._open_shards(needed)
            elif answer == NO_EPOCH and not turned:
                snapshot = self._turn_to(order, start, snapshot)
                turned = True
            else:
                return OTHERWISE if answer == NO_EPOCH else answer

    def _open_shards(self, entries: Set[int]) -> Snapshot:
        """Return tables in which these shards are open; others may be closed to make room."""
        with MAPPINGS.lock:
            opened: dict[int, tuple[np.ndarray, Arrays]] = {}
            while missing := entries - self._snapshot.held.keys() - opened.keys():
                # To map one shard may let another go, also of these.
                opened |= {entry: self._open_shard(entry) for entry in missing}
            snapshot = self._snapshot
            shards = snapshot.shards.copy()
            for entry, (record, _) in opened.items():
                shards[entry] = record
            held = {**snapshot.held, **{entry: arrays for entry, (_, arrays) in opened.items()}}
            self._snapshot = wanted = self._snapshot_of(snapshot.epochs, shards, held)
            for entry in opened:
                # This may make tables without some of the others, and without these.
                MAPPINGS.keep(self, entry, num_files=self._shard_at(entry).num_mapped)
        return wanted

    def let_go(self, keys: Set[Hashable]) -> None:
        """Close the shards of these entries; a kernel that reads them holds the tables it has."""
        with MAPPINGS.lock:
            snapshot = self._snapshot
            entries = [entry for entry in snapshot.held if entry in keys]
            shards = snapshot.shards.copy()
            shards[entries] = np.zeros((), SHARD)
            held = {entry: arrays for entry, arrays in snapshot.held.items() if entry not in keys}
            self._snapshot = self._snapshot_of(snapshot.epochs, shards, held)

    def _open_shard(self, entry: int) -> tuple[np.ndarray, Arrays]:
        """Return the record of a shard, and the arrays that it points to."""
        number = self._source_of(entry)
        shard, held = self._shard_at(entry), list[np.ndarray]()
        record = _describe_shard(shard, held, by_document=self._by_document[number])
        is_first = entry == self._first_shard[number]
        record["continued"] = not is_first and self._shard_at(entry - 1).continues
        # From here on these tables keep what is mapped, and let it go as a whole.
        shard.let_go({"tokens", "weights", "turns"})
        return record, tuple(held)

    def _source_of(self, entry: int) -> int:
        return int(np.searchsorted(self._first_shard, entry, side="right")) - 1

    def _shard_at(self, entry: int) -> Shard:
        number = self._source_of(entry)
        return self._splits[number].shards[entry - int(self._first_shard[number])]

    def _turn_to(self, order: Order, start: int, snapshot: Snapshot) -> Snapshot:
        """Put the permutations of the epochs that come at a position into new tables."""
        sources, permutations = snapshot.epochs[0].copy(), snapshot.epochs[1].copy()
        sources["epoch"] = order.counts(start) // sources["num_rows"]
        epochs = sources["epoch"][:, None] + np.arange(EPOCHS)
        permutations[:, :, 2:] = round_keys_of(order.keys_of_epochs(epochs))
        turned = (sources, permutations)
        with MAPPINGS.lock:
            self._snapshot = self._snapshot_of(turned, self._snapshot.shards, self._snapshot.held)
        return self._snapshot_of(turned, snapshot.shards, snapshot.held)


def _describe_shard(shard: Shard, held: list[np.ndarray], *, by_document: bool) -> np.ndarray:
    """Return the record of a shard in the table; the arrays that it points to go to `held`."""
    record = np.zeros((), SHARD)
    record["is_open"], record["tokens"] = True, _address(shard.tokens, held)
    if by_document:
        offsets = _offsets(shard.documents)
        record["num_documents"], record["documents"] = len(offsets) - 1, _address(offsets, held)
        record["document_marks"] = _address(_marks(offsets, shard.num_tokens), held)
    if shard.weights is not None:
        record["weights"] = _address(shard.weights, held)
    elif shard.turns is not None:
        record["num_turns"], record["turns"] = len(shard.turns), _address(shard.turns, held)
        record["turn_marks"] = _address(_marks(shard.turns["start"], shard.num_tokens), held)
    return record


def _address(values: np.ndarray, held: list[np.ndarray]) -> int:
    """Return the address of an array; `held` keeps the array alive."""
    array = np.ascontiguousarray(values)
    held.append(array)
    return int(array.ctypes.data)


def _table_of(plan: RowPlan) -> KernelTable:
    table = plan.kernel_table
    assert table is not None, "has_tables says which plans have one"
    return table


def _weighing(split: Split) -> tuple[int, int]:
    first = split.shards[0]
    if first.weight_file is not None:
        return BY_STORED, first.weight_file.dtype.itemsize
    return (BY_TURNS if first.turn_file is not None else ALL_WEIGH), 0


def _offsets(index: DocumentIndex) -> np.ndarray:
    """Return where documents start, and the end, uint64; windows leave no token out of them."""
    if isinstance(index, Offsets):
        return index.offsets.view(np.uint64)
    starts, stops = index.bounds(np.arange(len(index)))
    return np.append(starts, stops[-1:]).astype(np.uint64)


def _marks(starts: np.ndarray, num_tokens: int) -> np.ndarray:
    """Return for each 4,096th token the last record that starts at or before it, 0 if none does."""
    tokens = np.arange(0, num_tokens + 2 * MARK_TOKENS, MARK_TOKENS).astype(starts.dtype)
    return np.maximum(np.searchsorted(starts, tokens, side="right") - 1, 0)


def has_tables(plans: Sequence[RowPlan]) -> bool:
    """Return whether the kernels can make rows of these plans; else only the general way can."""
    return native.extension() is not None and all(map(_fits, plans))


def _fits(plan: RowPlan) -> bool:
    if plan.kernel_table is None:
        return False
    weights = {None if s.weight_file is None else s.weight_file.dtype for s in plan.split.shards}
    turns = {shard.turn_file is None for shard in plan.split.shards}
    known = weights == {None} or weights <= {np.dtype("u1"), np.dtype("<f4")}
    uniform = len(weights) == len(turns) == 1
    mapped = all(shard.mode == "mmap" for shard in plan.split.shards)
    return known and uniform and mapped
