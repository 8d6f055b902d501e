"""Rows of consecutive positions, looked up some thousand at a time.

One look-up of 32 rows costs nearly as much as one of a thousand: most of it is the call.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

AT_ONCE = 2048


class Ahead:
    """The rows that a pure function of (start, count) gives, a block of them at hand.

    >>> ahead = Ahead(lambda start, count: np.arange(start, start + count) * 10)
    >>> ahead.rows(5, 3).tolist(), ahead.rows(6, 2).tolist()
    ([50, 60, 70], [60, 70])
    """

    def __init__(
        self, look_up: Callable[[int, int], np.ndarray], *, at_once: int = AT_ONCE
    ) -> None:
        self._look_up, self._at_once = look_up, at_once
        self._block = (0, np.empty(0, np.int64))

    def rows(self, start: int, count: int) -> np.ndarray:
        """Return the rows of positions start to start + count."""
        first, block = self._block
        if not first <= start <= start + count <= first + len(block):
            first, block = start, self._look_up(start, max(count, self._at_once))
            # Replaced as a pair, never altered: threads may share one.
            self._block = first, block
        return block[start - first : start - first + count]
