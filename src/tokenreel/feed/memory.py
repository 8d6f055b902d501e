"""Arrays that are given out again once nobody holds them any more.

Fresh memory costs more than what is put into it: the pages of a new 64 MB array are
faulted in at 4 GB/s, those of an old one are there. An array is taken back only when the
last view of it, a tensor over it among them, is gone. At most 32 are kept, and no more than
were in use at once.
"""

from __future__ import annotations

import math
import sys
from threading import Lock
from typing import Any

import numpy as np

KEPT = 32  # arrays that are known; those beyond belong to whoever holds them


class Memory:
    """Memory of arrays that were given out; threads may share it."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []
        self._lock = Lock()
        self._unheld = _count_references([np.empty(0)])[0]

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array, not filled; its memory may have been another's."""
        kind = np.dtype(dtype)
        num_bytes = math.prod(shape) * kind.itemsize
        with self._lock:
            counts = _count_references(self._kept)
            for block, count in zip(self._kept, counts, strict=True):
                if block.nbytes == num_bytes and count == self._unheld:
                    return block.view(kind).reshape(shape)
            block = np.empty(num_bytes, np.uint8)
            self._kept = [*self._kept[1 - KEPT :], block]
            return block.view(kind).reshape(shape)


def _count_references(arrays: list[np.ndarray]) -> list[int]:
    """Return how often each array of a list is held; Pythons differ in what they count as well."""
    return [sys.getrefcount(array) for array in arrays]
