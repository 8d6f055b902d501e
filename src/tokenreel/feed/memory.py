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

from tokenreel.errors import LimitError

KEPT = 32  # arrays that are known; those beyond belong to whoever holds them


class Memory:
    """Memory of arrays that were given out; threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[int, list[np.ndarray]] = {}  # by their number of bytes, the oldest first
        self._lock = Lock()
        self._num_unheld = _first_unheld([np.empty(0)], None)

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array, not filled; its memory may have been another's."""
        kind = np.dtype(dtype)
        num_bytes = math.prod(shape) * kind.itemsize
        with self._lock:
            number = _first_unheld(self._kept.get(num_bytes, []), self._num_unheld)
            block = self._new(num_bytes) if number < 0 else self._kept[num_bytes][number]
            # A view of the block, which is held as long as any view of this one is.
            return np.ndarray(shape, kind, block)

    def _new(self, num_bytes: int) -> np.ndarray:
        try:
            block = np.empty(num_bytes, np.uint8)
        except (MemoryError, ValueError) as error:  # ValueError: more than can be addressed
            raise LimitError(
                "there is no memory for an array of a batch",
                expected=f"{num_bytes:,} bytes",
                remedy="make seq_len or global_batch_size smaller",
            ) from error
        self._kept.setdefault(num_bytes, []).append(block)
        if sum(map(len, self._kept.values())) > KEPT:
            # Sizes that are no longer asked for go first.
            oldest = next(iter(self._kept))
            self._kept[oldest].pop(0)
            if not self._kept[oldest]:
                del self._kept[oldest]
        if next(reversed(self._kept)) != num_bytes:
            self._kept[num_bytes] = self._kept.pop(num_bytes)
        return block


def _first_unheld(blocks: list[np.ndarray], num_unheld: int | None) -> int:
    """Return the number of the first block that only its list holds, or -1.

    With None, how often such a block is held: Pythons differ in what they count as well, so it
    is counted here, in this very loop.
    """
    for number, block in enumerate(blocks):
        count = sys.getrefcount(block)
        if num_unheld is None:
            return count
        if count == num_unheld:
            return number
    return -1
