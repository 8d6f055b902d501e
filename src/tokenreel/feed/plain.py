"""The fast way for the plainest recipe: every source is windows of unweighted tokens.

Order and gather are one call of the kernel (native/windows.c); everything it needs is
laid out once, here. Shards are opened when a row first needs them. A batch with a window
that crosses the border of two shards, or is padded, takes the general way. Segments,
positions and weights are the same for all rows: views of one row, without memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenreel import native
from tokenreel.order.order import Order
from tokenreel.order.permutation import ROUNDS
from tokenreel.rows.plan import RowPlan
from tokenreel.rows.windows import Windows

COLUMNS = 8
ROWS_COLUMN = 3
EPOCH_COLUMN = 4
EPOCHS = 2  # permutations at hand: the current epoch and the next
NOT_PLAIN = -2


class PlainWindows:
    """Rows of plain windows; threads may share one: what changes is replaced, never altered."""

    def __init__(self, plans: Sequence[RowPlan], order: Order) -> None:
        self._kernel: Any = native.extension()
        self._order = order
        self._seq_len = int(plans[0].settings["seq_len"])  # type: ignore[call-overload]
        self._splits = [plan.split for plan in plans]
        self._bounds = np.concatenate([split.token_starts for split in self._splits])
        num_shards = [len(split.shards) for split in self._splits]
        self._first_shard = np.cumsum([0, *num_shards])
        self._shards: tuple[np.ndarray | None, ...] = (None,) * sum(num_shards)
        table = np.zeros((len(plans), COLUMNS), np.int64)
        for number, (plan, item) in enumerate(zip(plans, order.sources, strict=True)):
            dtype = plan.split.shards[0].token_file.dtype
            table[number] = (
                self._first_shard[number] + number,  # each source has one bound more than shards
                num_shards[number],
                self._first_shard[number],
                plan.num_rows,
                -EPOCHS,  # no permutation yet
                item.shuffle,
                dtype.itemsize,
                dtype.kind == "i",
            )
        permutations = np.zeros((len(plans), EPOCHS, 2 + ROUNDS), np.uint64)
        self._tables = (table, permutations)

    def fill(self, start: int, count: int, inputs: np.ndarray, labels: np.ndarray) -> bool:
        """Fill inputs and labels, int64 [count · T], with the rows from a position on.

        False if the general way must do it; what was filled is then worth nothing.
        """
        source, number = self._order.numbers(start, count)
        turned = False
        while True:
            missing = self._kernel.windows(
                self._shards,
                self._bounds,
                *self._tables,
                source,
                number,
                self._seq_len,
                inputs,
                labels,
            )
            if missing == 0:
                return True
            if missing > 0:
                self._open_shard(missing - 1)
            elif missing == NOT_PLAIN or turned:
                return False
            else:
                self._turn_to(source, number)
                turned = True

    def _open_shard(self, place: int) -> None:
        number = int(np.searchsorted(self._first_shard, place, side="right")) - 1
        shard = self._splits[number].shards[place - int(self._first_shard[number])]
        self._shards = (*self._shards[:place], shard.tokens, *self._shards[place + 1 :])

    def _turn_to(self, source: np.ndarray, number: np.ndarray) -> None:
        """Put the permutations of the epochs that these rows begin with into new tables."""
        table, permutations = self._tables[0].copy(), self._tables[1].copy()
        for s in np.unique(source).tolist():
            epoch = int(number[source == s].min()) // int(table[s, ROWS_COLUMN])
            table[s, EPOCH_COLUMN] = epoch
            for later in range(EPOCHS):
                permutation = self._order.permutation(s, epoch + later)
                permutations[s, later, :2] = permutation.sides
                permutations[s, later, 2:] = permutation.round_keys
        self._tables = (table, permutations)


class CommonFields:
    """What all plain rows have in common, as views of one row: no memory, read-only."""

    def __init__(self, seq_len: int) -> None:
        self._row = {
            "segment_ids": np.ones(seq_len, np.int32),
            "position_ids": np.arange(seq_len, dtype=np.int32),
            "loss_weights": np.ones(seq_len, np.float32),
        }
        self._views: dict[tuple[int, ...], dict[str, np.ndarray]] = {}

    def of_shape(self, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Return segments, positions and weights of a batch of this shape."""
        if shape not in self._views:
            views = {name: np.broadcast_to(row, shape) for name, row in self._row.items()}
            self._views[shape] = views
        return self._views[shape]


def plain_windows(plans: Sequence[RowPlan], order: Order) -> PlainWindows | None:
    """Return the fast way, if it serves these plans."""
    plain = all(isinstance(plan, Windows) and plan.is_plain for plan in plans)
    capped = any(item.max_epochs is not None for item in order.sources)
    if native.extension() is None or capped or not plain:
        return None
    return PlainWindows(plans, order)
