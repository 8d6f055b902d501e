"""An order in which rows come in groups: `size` rows side by side, one group after the other.

For prompts that are each shown so many times in a row. Positions, numbers and counts are those of
rows here, as everywhere; mixture, epochs and shuffle see groups, each of which is one row to them.

    row of the source     g · size + k       k-th of group g
    position of the run   p · size + k       p: the position of g in the order of groups

A step of a multiple of `size` rows never cuts a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from tokenreel.order.order import Era, Located, Order


class GroupedOrder(Order):
    """The order of rows that an order of groups makes; it answers all that an Order answers.

    >>> from tokenreel.order.order import SourceRows
    >>> groups = Order([SourceRows(name="a", num_rows=3, shuffle=False)], shares=[1.0], seed=0)
    >>> GroupedOrder(groups, size=2).locate(2, 4).row.tolist()
    [2, 3, 4, 5]
    """

    def __init__(self, groups: Order, *, size: int) -> None:
        self._size = size
        self._set_groups(groups)

    def _set_groups(self, groups: Order) -> None:
        self._groups = groups
        self.sources = tuple(
            replace(item, num_rows=item.num_rows * self._size) for item in groups.sources
        )
        self.seed, self.num_rows = groups.seed, groups.num_rows * self._size
        self.epoch_keys, self.eras = groups.epoch_keys, groups.eras

    def changed(self, changes: Sequence[tuple[int, Sequence[float]]]) -> Order:
        """Return the order that goes on with other shares from each of these positions on."""
        order = copy(self)
        inner = [(position // self._size, shares) for position, shares in changes]
        order._set_groups(self._groups.changed(inner))
        return order

    def shares_from(self, position: int) -> np.ndarray | None:
        """Return the shares that hold from a position on to the end; None: they will change."""
        return self._groups.shares_from(position // self._size)

    def shares_at(self, position: int) -> np.ndarray | None:
        """Return the shares that hold at a position; None: sources come one after the other."""
        return self._groups.shares_at(position // self._size)

    def counts(self, position: int) -> np.ndarray:
        """Return how many rows of each source come before a position, int64 [S]."""
        whole, rest = divmod(position, self._size)
        counts = self._groups.counts(whole) * self._size
        if rest:  # in the midst of a group
            counts[self._groups.locate(whole, 1).source[0]] += rest
        return counts

    def era(self, position: int) -> Era:
        """Return what holds at a position; its times are those of groups."""
        return self._groups.era(position // self._size)

    def locate(self, start: int, count: int) -> Located:
        """Return source, epoch and row of `count` positions from `start` on."""
        size, first = self._size, start // self._size
        groups = self._groups.locate(first, -(-(start + count) // size) - first)
        rows = (groups.row[:, None] * size + np.arange(size)).reshape(-1)
        chosen = slice(start - first * size, start - first * size + count)
        return Located(
            source=np.repeat(groups.source, size)[chosen],
            epoch=np.repeat(groups.epoch, size)[chosen],
            row=rows[chosen],
        )

    def positions(self, source: int, row: int, *, epochs: range) -> list[tuple[int, int]]:
        """Return (epoch, position) of a row of a source in these epochs; O(epochs)."""
        group, within = divmod(row, self._size)
        found = self._groups.positions(source, group, epochs=epochs)
        return [(epoch, position * self._size + within) for epoch, position in found]

    def first_position(self, source: int, number: int) -> int:
        """Return where a row of a source, counted through all epochs, comes; -1: never."""
        group, within = divmod(number, self._size)
        position = self._groups.first_position(source, group)
        return position if position < 0 else position * self._size + within

    def first_beyond(self, limits: np.ndarray) -> tuple[int, int] | None:
        """Return (position, source) of the first row with a number not below its source's limit."""
        found = self._groups.first_beyond(limits // self._size)
        return None if found is None else (found[0] * self._size, found[1])

    def earliest_positions(self, numbers: np.ndarray) -> np.ndarray:
        """Return positions before which a row of each source does not come, float64 [S]."""
        return self._groups.earliest_positions(numbers // self._size) * self._size
