"""Rows of a run from a position on: in one call of the kernel, or step by step.

The kernel (native/assemble.c) goes from the order to the finished rows at once. What it
does not serve takes the general way: order, pieces, spans, tokens, gather, a source at a
time; that is also the reference, and it explains what the kernel only refuses. Both give
the same rows. The kernel shares its work among threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenreel.feed.buffers import BatchMemory
from tokenreel.feed.denominators import weigh_rows
from tokenreel.feed.gather import Gathered, gather
from tokenreel.feed.tables import tables_for
from tokenreel.feed.tokens import tokens_of
from tokenreel.feed.weights import spans_of
from tokenreel.order.order import Located, Order
from tokenreel.rows.plan import RowPlan
from tokenreel.rows.windows import Windows


class Assembler:
    """Makes the rows of these plans in this order; threads may share one."""

    def __init__(self, plans: Sequence[RowPlan], order: Order, *, pad_id: int) -> None:
        self._plans, self._order, self._pad_id = plans, order, pad_id
        self._seq_len = int(plans[0].settings["seq_len"])  # type: ignore[call-overload]
        self._tables = tables_for(plans, order, pad_id=pad_id)
        self._is_plain = all(isinstance(plan, Windows) and plan.is_plain for plan in plans)

    def fill_plain(self, start: int, memory: BatchMemory, *, threads: int = 1) -> bool:
        """Fill inputs and labels alone, if the rows have nothing else to say; else return False.

        A plain row is one segment of tokens that all weigh 1, without padding.
        """
        if self._tables is None or not self._is_plain:
            return False
        return self._tables.fill(start, memory.input_ids, memory.labels, threads=threads) == 0

    def fill(self, start: int, rows: Gathered, *, threads: int = 1) -> None:
        """Fill rows with those from a position on."""
        if self._tables is None or self._tables.fill_rows(start, rows, threads=threads) != 0:
            self.fill_by_steps(start, rows)

    def weigh(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what each row from a position on weighs, float64, and its samples, int64."""
        weights, samples = np.empty(count), np.empty(count, np.int64)
        tables = self._tables
        if tables is not None and tables.weigh(start, weights, samples, self._seq_len) == 0:
            return weights, samples
        located = self._order.locate(start, count)
        for source, plan in enumerate(self._plans):
            mine = np.flatnonzero(located.source == source)
            if len(mine):
                weights[mine], samples[mine] = weigh_rows(plan, located.row[mine])
        return weights, samples

    def announce(self, start: int, count: int) -> None:
        """Have the system read what the rows from a position on are made of."""
        if self._tables is not None:
            self._tables.announce(start, count, self._seq_len)

    def fill_by_steps(self, start: int, rows: Gathered) -> None:
        """Do the same the general way."""
        located = self._order.locate(start, len(rows.input_ids))
        for source in range(len(self._plans)):
            self._fill_source(rows, located, source)

    def _fill_source(self, rows: Gathered, located: Located, source: int) -> None:
        plan = self._plans[source]
        mine = np.flatnonzero(located.source == source)
        if not len(mine):
            return
        pieces = plan.pieces(located.row[mine])
        spans = spans_of(plan.split, pieces)
        shards, buffer, pieces = tokens_of(plan.split, pieces)
        gather(shards, pieces, rows, out_row=mine, buffer=buffer, spans=spans, pad_id=self._pad_id)
