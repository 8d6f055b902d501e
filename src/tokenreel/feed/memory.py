"""Arrays that are given out again once nobody holds them any more.

Fresh memory costs more than what is put into it: the pages of a new 64 MB array are
faulted in at 4 GB/s, those of an old one are there. An array is taken back only when the
last view of it, a tensor over it among them, is gone.
"""

from __future__ import annotations

import math
import sys
from threading import Lock
from typing import Any

import numpy as np

KEPT = 16  # arrays; a batch or two and what is made ahead
UNUSED = 3  # references to an array that nobody holds: the list, the loop, the question


class Memory:
    """Memory of arrays that were given out; threads may share it."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []
        self._lock = Lock()

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array, not filled; its memory may have been another's."""
        kind = np.dtype(dtype)
        num_bytes = math.prod(shape) * kind.itemsize
        with self._lock:
            for block in self._kept:
                if block.nbytes == num_bytes and sys.getrefcount(block) == UNUSED:
                    return block.view(kind).reshape(shape)
            block = np.empty(num_bytes, np.uint8)
            self._kept = [*self._kept[1 - KEPT :], block]
            return block.view(kind).reshape(shape)
