"""What batches are put into, and a ring of it that is used again and again.

Fresh memory costs more than what is put into it (page faults), and a device copies faster
from memory that is pinned: so the memory of a batch may be allocated by the caller, once,
and lent to one batch after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.gather import Gathered

Allocate = Callable[[tuple[int, ...], Any], np.ndarray]
ID, COUNT, WEIGHT, MASK = map(np.dtype, (np.int64, np.int32, np.float32, bool))


class BatchMemory:
    """The memory of one batch: ids at once, segments, positions and weights when first needed.

    `allocate(shape, dtype)` returns an array for each, contiguous and writable. With `masked`
    there is one for attention_mask too. source_ids, int32 [rows], are few: nobody allocates them.
    """

    def __init__(
        self, num_rows: int, seq_len: int, *, allocate: Allocate = np.empty, masked: bool = False
    ) -> None:
        self._allocate, self._masked = allocate, masked
        self.input_ids = allocate((num_rows, seq_len), ID)
        self.labels = allocate((num_rows, seq_len), ID)
        self.source_ids = np.empty(num_rows, COUNT)
        self.mask: np.ndarray | None = None
        self._rows: Gathered | None = None

    @classmethod
    def of(cls, batch: Batch, *, shape: tuple[int, ...], masked: bool) -> BatchMemory:
        """Return the memory of a batch of this shape that is no longer needed."""
        lent = cls.__new__(cls)
        lent._allocate, lent._masked = np.empty, masked
        lent.input_ids = _fitting(batch.input_ids, shape, ID)
        lent.labels = _fitting(batch.labels, shape, ID)
        lent.source_ids = np.empty(len(lent.input_ids), COUNT)
        lent.mask, lent._rows = None, None
        if not batch.shared:  # else only ids and labels have memory of their own
            if masked and batch.made_mask is not None:
                lent.mask = _fitting(batch.made_mask, shape, MASK)
            lent._rows = Gathered(
                input_ids=lent.input_ids,
                labels=lent.labels,
                segment_ids=_fitting(batch.segment_ids, shape, COUNT),
                position_ids=_fitting(batch.position_ids, shape, COUNT),
                loss_weights=_fitting(batch.loss_weights, shape, WEIGHT),
            )
        return lent

    def rows(self) -> Gathered:
        """Return all five arrays, [rows, T]; those not there yet, and the mask, are allocated."""
        shape = self.input_ids.shape
        if self._masked and self.mask is None:
            self.mask = self._allocate(shape, MASK)
        if self._rows is None:
            self._rows = Gathered(
                input_ids=self.input_ids,
                labels=self.labels,
                segment_ids=self._allocate(shape, COUNT),
                position_ids=self._allocate(shape, COUNT),
                loss_weights=self._allocate(shape, WEIGHT),
            )
        return self._rows


def _fitting(array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return memory that a batch can be put into as it is, [rows, T], or raise ConfigError."""
    is_typed = array.dtype is dtype or array.dtype == dtype  # the first is the faster
    if array.shape == shape and is_typed and array.flags.carray:
        return array if len(shape) == 2 else array.reshape(-1, shape[-1])
    flags = {"not contiguous": not array.flags.c_contiguous, "read-only": not array.flags.writeable}
    faults = [name for name, holds in flags.items() if holds]
    raise ConfigError(
        "a batch cannot be put into this memory",
        expected=f"{dtype} {shape}, contiguous, writable",
        actual=", ".join((f"{array.dtype} {array.shape}", *faults)),
    )


def checked(allocate: Allocate) -> Allocate:
    """Return an `allocate` that raises ConfigError for memory no batch can be put into."""

    def allocate_fitting(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return _fitting(np.asarray(allocate(shape, dtype)), shape, dtype)

    return allocate_fitting


class Ring:
    """Memory for `size` batches; the n-th batch gets the memory of the one `size` before it."""

    def __init__(self, size: int, make: Callable[[], BatchMemory]) -> None:
        self._make = make
        self._memories: list[BatchMemory | None] = [None] * size

    def __getitem__(self, number: int) -> BatchMemory:
        index = number % len(self._memories)
        memory = self._memories[index]
        if memory is None:
            memory = self._memories[index] = self._make()
        return memory
