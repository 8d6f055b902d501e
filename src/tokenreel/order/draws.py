"""Rows at random, with replacement, as a pure function of where a run is.

Draw i is the upper half of (hash of i) · num_rows: uniform but for num_rows parts in
2⁶⁴, any stretch of draws at once, and nothing to remember but how many there were.
"""

from __future__ import annotations

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.seeds import scramble

VERSION = 1
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def draw(start: int, count: int, *, num_rows: int, key: int) -> np.ndarray:
    """Return draws start to start + count among num_rows rows, int64.

    >>> several = draw(10, 4, num_rows=6, key=7)
    >>> several[2:].tolist() == draw(12, 2, num_rows=6, key=7).tolist()
    True
    """
    if num_rows < 1:
        raise ConfigError("there is nothing to draw from", expected=">= 1 row", actual=num_rows)
    hashed = scramble(np.arange(start, start + count, dtype=np.uint64), key)
    return _upper_half(hashed, num_rows).astype(np.int64)


def _upper_half(values: np.ndarray, factor: int) -> np.ndarray:
    """Return the upper 64 bits of the 128 of each value times a factor."""
    high, low = np.uint64(factor >> 32), np.uint64(factor & 0xFFFFFFFF)
    upper, lower = values >> HALF, values & LOW
    middle = upper * low + ((lower * low) >> HALF)  # at most 2⁶⁴ - 2³²: no overflow
    return upper * high + (middle >> HALF) + ((lower * high + (middle & LOW)) >> HALF)
