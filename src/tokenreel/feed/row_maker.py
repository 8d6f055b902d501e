"""Rows of a step of the run: in one call of the kernel, or step by step.

The kernel (native/assemble.c) goes from the order to the finished rows at once. What it
does not serve takes the general way: order, pieces, spans, tokens, gather, a source at a
time; that is also the reference, and it explains what the kernel only refuses. Both give
the same rows. The kernel shares its work among threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from tokenreel.feed.buffers import BatchMemory
from tokenreel.feed.denominators import weigh_rows
from tokenreel.feed.gather import Gathered, gather
from tokenreel.feed.kernel_tables import Tables, has_tables
from tokenreel.feed.parts import NO_ROW
from tokenreel.feed.tokens import tokens_of
from tokenreel.feed.weights import spans_of
from tokenreel.order.deal import Deal
from tokenreel.order.order import Located, Order
from tokenreel.rows.row_plan import RowPlan


class Assembler:
    """Makes the rows of these plans in this order; threads may share one."""

    def __init__(
        self, plans: Sequence[RowPlan], order: Order, *, deal: Deal, seq_len: int, pad_id: int
    ) -> None:
        self._plans, self._order, self._deal, self._pad_id = plans, order, deal, pad_id
        self._tables: Tables | None = None
        if has_tables(plans):
            self._tables = Tables(plans, order, deal=deal, seq_len=seq_len, pad_id=pad_id)
        known = [plan.kernel_table for plan in plans]
        self._is_plain = all(table is not None and table.is_plain for table in known)

    def in_order(self, order: Order) -> Assembler:
        """Return an assembler of the same rows in an order with other weights."""
        changed = copy(self)
        changed._order = order
        return changed

    def fill_plain(
        self, step: int, seats: np.ndarray, memory: BatchMemory, *, threads: int = 1
    ) -> bool:
        """Fill inputs, labels and sources of plain rows; return False if some row is not plain.

        A plain row is one segment of tokens that all weigh 1, without padding.
        """
        if self._tables is None or not self._is_plain:
            return False
        tables, order = self._tables, self._order
        return tables.fill(order, step, seats, memory, plain=True, threads=threads) == 0

    def fill(self, step: int, seats: np.ndarray, memory: BatchMemory, *, threads: int = 1) -> None:
        """Fill rows with those in seats of a step."""
        tables = self._tables
        if tables is None or tables.fill(self._order, step, seats, memory, threads=threads) != 0:
            self.fill_by_steps(step, seats, memory)

    def weigh(self, step: int, seats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what each row weighs, float64, and its samples, int64."""
        weights, samples = np.empty(len(seats)), np.empty(len(seats), np.int64)
        tables = self._tables
        if tables is not None and tables.weigh(self._order, step, seats, weights, samples) == 0:
            return weights, samples
        located = self.locate(step, seats)
        for source in np.unique(located.source).tolist():
            mine = np.flatnonzero(located.source == source)
            weights[mine], samples[mine] = weigh_rows(self._plans[source], located.row[mine])
        return weights, samples

    def announce(self, step: int, seats: np.ndarray) -> None:
        """Have the system read what the rows in seats of a step are made of."""
        if self._tables is not None:
            self._tables.announce(self._order, step, seats)

    def locate(self, step: int, seats: np.ndarray) -> Located:
        """Return source, epoch and row of the rows in seats of a step; all -1 for padding."""
        start, num_rows = step * self._deal.batch_size, self._deal.num_rows_in(step)
        whole = self._order.locate(start, num_rows)
        located = Located(*(np.full(len(seats), -1, c.dtype) for c in whole.columns))
        taken = np.flatnonzero((seats >= 0) & (seats < num_rows))
        position = self._deal.positions(step, seats[taken]) - start
        for column, values in zip(located.columns, whole.columns, strict=True):
            column[taken] = values[position]
        return located

    def fill_by_steps(self, step: int, seats: np.ndarray, memory: BatchMemory) -> None:
        """Fill the same rows without the kernel: order, pieces, spans, tokens, gather."""
        located = self.locate(step, seats)
        rows = memory.rows()
        memory.source_ids[:] = located.source
        for source in np.unique(located.source).tolist():
            mine = np.flatnonzero(located.source == source)
            if source == NO_ROW:
                rows.fill_padding(mine, pad_id=self._pad_id)
            else:
                self._fill_source(rows, self._plans[source], mine, located.row[mine])
        if memory.mask is not None:
            np.greater(rows.segment_ids, 0, out=memory.mask)

    def _fill_source(
        self, rows: Gathered, plan: RowPlan, mine: np.ndarray, numbers: np.ndarray
    ) -> None:
        pieces = plan.pieces(numbers)
        spans = spans_of(plan.split, pieces)
        shards, buffer, pieces = tokens_of(plan.split, pieces)
        gather(shards, pieces, rows, out_row=mine, buffer=buffer, spans=spans, pad_id=self._pad_id)
        if pieces.lead is not None:
            rows.move_right(mine, pieces.lead)
