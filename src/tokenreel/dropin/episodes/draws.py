"""Rows at random, with replacement, as a pure function of where a run is.

Draw i is the upper half of (hash of i) · num_rows: uniform but for num_rows parts in
2⁶⁴, any stretch of draws at once, and nothing to remember but how many there were.
"""

from __future__ import annotations

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.seeds import scramble

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
AT_ONCE = 2048  # one look-up of 32 draws costs nearly as much as one of a thousand


class Draws:
    """Draws among num_rows rows by a key, a block of them at hand; threads may share them.

    >>> draws = Draws(6, key=7)
    >>> draws.rows(10, 4)[2:].tolist() == draws.rows(12, 2).tolist()
    True
    """

    def __init__(self, num_rows: int, *, key: int) -> None:
        if num_rows < 1:
            raise ConfigError("there is nothing to draw from", expected=">= 1 row", actual=num_rows)
        self._num_rows, self._key = num_rows, key
        self._block = (0, np.empty(0, np.int64))

    def rows(self, start: int, count: int) -> np.ndarray:
        """Return draws start to start + count, int64."""
        first, block = self._block
        if not first <= start <= start + count <= first + len(block):
            stop = start + max(count, AT_ONCE)
            hashed = scramble(np.arange(start, stop, dtype=np.uint64), self._key)
            first, block = start, _upper_half(hashed, self._num_rows).astype(np.int64)
            # Replaced as a pair, never altered: threads may share one.
            self._block = first, block
        return block[start - first : start - first + count]


def _upper_half(values: np.ndarray, factor: int) -> np.ndarray:
    """Return the upper 64 bits of the 128 of each value times a factor."""
    high, low = np.uint64(factor >> 32), np.uint64(factor & 0xFFFFFFFF)
    upper, lower = values >> HALF, values & LOW
    middle = upper * low + ((lower * low) >> HALF)  # at most 2⁶⁴ - 2³²: no overflow
    return upper * high + (middle >> HALF) + ((lower * high + (middle & LOW)) >> HALF)
