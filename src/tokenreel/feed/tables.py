"""Everything a batch is made from, laid out once for the kernel that makes it in one call.

Plans, shards, turns and weights as two tables of numbers and addresses (layout:
native/native.h). They do not know the weights of sources, so a change of weights keeps
them. A shard is opened when a row first needs it; opening one, or turning to another epoch,
replaces a table and alters none, so threads may share them. Marks say which
document and which turn is at every 4,096th token of a shard: 8 bytes each, 0.1 % of the
tokens' size, instead of a search that misses the cache at every step.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from tokenreel import native
from tokenreel.feed.buffers import BatchMemory
from tokenreel.order.deal import Deal
from tokenreel.order.mixture import Mixture
from tokenreel.order.order import Order, SourceRows
from tokenreel.order.permutation import ROUNDS, round_keys_of, sides_of
from tokenreel.order.schedule import MAX_TIME
from tokenreel.rows.episodes import Episodes
from tokenreel.rows.packed import Packed
from tokenreel.rows.plan import RowPlan
from tokenreel.rows.windows import Windows
from tokenreel.store.documents import DocumentIndex, Offsets
from tokenreel.store.shard import Shard
from tokenreel.store.split import Split

SOURCE = np.dtype(
    [
        ("kind", "<i8"),
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
WINDOWS, DOCUMENT_WINDOWS, PACKED, EPISODES = range(4)
ALL_WEIGH, BY_TURNS, BY_STORED = range(3)
EPOCHS = 2  # permutations at hand: the current epoch and the next
NO_EPOCH, OTHERWISE, PADDED = -1, -2, -3  # what the kernel answers, besides shards to open
MARK_TOKENS = 4096
NO_LIMIT = 2**63 - 1


class Tables:
    """What the kernels need to make rows of these plans; orders differ in their weights alone."""

    def __init__(
        self, plans: Sequence[RowPlan], order: Order, *, deal: Deal, seq_len: int, pad_id: int
    ) -> None:
        self._kernels = native.extension()
        self._splits = [plan.split for plan in plans]
        self._cut = [isinstance(plan, Windows) and plan.by_document for plan in plans]
        self._deal = deal
        self._deal_key = b"" if deal.key is None else deal.key.to_bytes(8, sys.byteorder)
        self._seq_len, self._pad_id = seq_len, pad_id
        self._held: list[np.ndarray] = []  # what the tables point to
        self._first_shard = np.cumsum([0, *(len(split.shards) for split in self._splits)])
        self._shards = np.zeros(self._first_shard[-1], SHARD)
        sources = np.zeros(len(plans), SOURCE)
        permutations = np.zeros((len(plans), EPOCHS, 2 + ROUNDS), np.uint64)
        for number, (plan, item) in enumerate(zip(plans, order.sources, strict=True)):
            self._lay_out(sources[number], plan, item, number)
            permutations[number, :, :2] = sides_of(plan.num_rows)
        self._epochs = (sources, permutations)
        self._views = self._seen()

    def _seen(self) -> tuple[bytes | memoryview, ...]:
        """Return the tables as the kernels take them; a view is taken faster than an array."""
        tables = (self._epochs[0], self._shards, self._epochs[1])
        return self._deal_key, *(table.view(np.uint8).data for table in tables)

    def _lay_out(self, source: np.void, plan: RowPlan, item: SourceRows, number: int) -> None:
        split = plan.split
        dtype = split.shards[0].token_file.dtype
        source["kind"], columns = columns_of(plan)
        source["num_rows"] = plan.num_rows
        limit = NO_LIMIT if item.max_epochs is None else item.max_epochs * plan.num_rows
        source["limit"] = min(limit, NO_LIMIT)
        source["epoch"] = -EPOCHS  # no permutation yet
        source["shuffled"] = item.shuffle
        source["first_shard"], source["num_shards"] = self._first_shard[number], len(split.shards)
        source["bounds"] = self._address(split.token_starts)
        source["token_kind"] = -dtype.itemsize if dtype.kind == "i" else dtype.itemsize
        source["weighing"], source["stored_bytes"] = _weighing(split)
        source["num_pieces"] = len(columns[1]) if columns[1] is not None else 0
        source["columns"] = [0 if column is None else self._address(column) for column in columns]

    def _address(self, values: np.ndarray) -> int:
        """Return where an array lies; it stays there as long as the tables do."""
        held = np.ascontiguousarray(values)
        self._held.append(held)
        return int(held.ctypes.data)

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
        while True:
            views = (*self._views, *era.mixture.tables)
            answer: int | tuple[int, ...] = kernel(local, step, num_rows, seats, *views, *args)
            if isinstance(answer, tuple):
                self._open_shards(set(answer))
            elif answer == NO_EPOCH and not turned:
                self._turn_to(order, start)
                turned = True
            else:
                return OTHERWISE if answer == NO_EPOCH else answer

    def _open_shards(self, places: set[int]) -> None:
        # No lock, which a process forked meanwhile would wait for: what threads undo of each
        # other's work is asked for again.
        shards = self._shards.copy()
        for place in places:
            number = int(np.searchsorted(self._first_shard, place, side="right")) - 1
            local = place - int(self._first_shard[number])
            split = self._splits[number]
            entry = np.zeros((), SHARD)
            self._describe(entry, split.shards[local], by_document=self._cut[number])
            entry["continued"] = local > 0 and split.shards[local - 1].continues
            shards[place] = entry
        self._shards = shards
        self._views = self._seen()

    def _describe(self, entry: np.ndarray, shard: Shard, *, by_document: bool) -> None:
        entry["is_open"], entry["tokens"] = True, self._address(shard.tokens)
        if by_document:
            offsets = _offsets(shard.documents)
            entry["num_documents"], entry["documents"] = len(offsets) - 1, self._address(offsets)
            entry["document_marks"] = self._address(_marks(offsets, shard.num_tokens))
        if shard.weights is not None:
            entry["weights"] = self._address(shard.weights)
        elif shard.turns is not None:
            entry["num_turns"], entry["turns"] = len(shard.turns), self._address(shard.turns)
            entry["turn_marks"] = self._address(_marks(shard.turns["start"], shard.num_tokens))

    def _turn_to(self, order: Order, start: int) -> None:
        """Put the permutations of the epochs that come at a position into new tables."""
        sources, permutations = self._epochs[0].copy(), self._epochs[1].copy()
        sources["epoch"] = order.counts(start) // sources["num_rows"]
        epochs = sources["epoch"][:, None] + np.arange(EPOCHS)
        permutations[:, :, 2:] = round_keys_of(order.keys_of_epochs(epochs))
        self._epochs = (sources, permutations)
        self._views = self._seen()


def columns_of(plan: RowPlan) -> tuple[int, tuple[np.ndarray | None, ...]]:
    """Return the kind of a plan and the arrays its rows are looked up in, always four."""
    if isinstance(plan, Packed):
        table = plan.table
        return PACKED, (table.row_offsets, table.positions, table.lengths, table.flags)
    if isinstance(plan, Episodes):
        rows = plan.segments
        has_prefix = rows.prefix_length.strides[0] > 0
        prefix = (rows.prefix_start, rows.prefix_length) if has_prefix else (None, None)
        return EPISODES, (rows.start, rows.length, *prefix)
    assert isinstance(plan, Windows)
    return DOCUMENT_WINDOWS if plan.by_document else WINDOWS, (plan.kept, None, None, None)


def _weighing(split: Split) -> tuple[int, int]:
    first = split.shards[0]
    if first.weight_file is not None:
        return BY_STORED, first.weight_file.dtype.itemsize
    return (BY_TURNS if first.turn_file is not None else ALL_WEIGH), 0


def _offsets(index: DocumentIndex) -> np.ndarray:
    """Return where documents start, and the end, uint64; windows leave no token out of them."""
    if isinstance(index, Offsets) and index.offsets.dtype.itemsize == 8:
        return index.offsets.view(np.uint64)
    starts, stops = index.bounds(np.arange(len(index)))
    return np.append(starts, stops[-1:]).astype(np.uint64)


def _marks(starts: np.ndarray, num_tokens: int) -> np.ndarray:
    """Return the last of the records that starts not after each 4,096th token, else 0."""
    tokens = np.arange(0, num_tokens + 2 * MARK_TOKENS, MARK_TOKENS).astype(starts.dtype)
    return np.maximum(np.searchsorted(starts, tokens, side="right") - 1, 0)


def has_tables(plans: Sequence[RowPlan]) -> bool:
    """Return whether the kernels can make rows of these plans; else only the general way can."""
    return native.extension() is not None and all(map(_fits, plans))


def _fits(plan: RowPlan) -> bool:
    if not isinstance(plan, (Windows, Packed, Episodes)):
        return False
    weights = {None if s.weight_file is None else s.weight_file.dtype for s in plan.split.shards}
    turns = {shard.turn_file is None for shard in plan.split.shards}
    known = weights == {None} or weights <= {np.dtype("u1"), np.dtype("<f4")}
    uniform = len(weights) == len(turns) == 1
    mapped = all(shard.mode == "mmap" for shard in plan.split.shards)
    return known and uniform and mapped
