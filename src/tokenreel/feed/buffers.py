"""What batches are put into, and a ring of it that is used again and again.

Fresh memory costs more than what is put into it (page faults), and a device copies faster
from memory that is pinned: so the memory of a batch may be allocated by the caller, once,
and lent to one batch after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tokenreel.feed.batch import Batch
from tokenreel.feed.gather import Gathered

Allocate = Callable[[tuple[int, int], Any], np.ndarray]
ID, COUNT, WEIGHT = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.float32)


class Memory:
    """The memory of one batch: ids at once, segments, positions and weights when first needed.

    `allocate(shape, dtype)` returns an array for each of the five, contiguous and writable.
    """

    def __init__(self, num_rows: int, seq_len: int, *, allocate: Allocate = np.empty) -> None:
        self._allocate = allocate
        self.input_ids = allocate((num_rows, seq_len), ID)
        self.labels = allocate((num_rows, seq_len), ID)
        self._rows: Gathered | None = None

    @classmethod
    def of(cls, batch: Batch) -> Memory:
        """Return the memory of a batch that is no longer needed."""
        lent = cls.__new__(cls)
        lent._allocate = np.empty
        shape = batch.input_ids.shape
        lent.input_ids, lent.labels = batch.input_ids, batch.labels
        if len(shape) > 2:
            shape = (-1, shape[-1])
            lent.input_ids, lent.labels = lent.input_ids.reshape(shape), lent.labels.reshape(shape)
        lent._rows = None
        if batch.segment_ids.flags.writeable:  # else it is a view that all batches share
            lent._rows = Gathered(
                input_ids=lent.input_ids,
                labels=lent.labels,
                segment_ids=batch.segment_ids.reshape(shape),
                position_ids=batch.position_ids.reshape(shape),
                loss_weights=batch.loss_weights.reshape(shape),
            )
        return lent

    def rows(self) -> Gathered:
        """Return all five arrays, [rows, T]."""
        if self._rows is None:
            self._rows = Gathered(
                input_ids=self.input_ids,
                labels=self.labels,
                segment_ids=self._allocate(self.input_ids.shape, COUNT),
                position_ids=self._allocate(self.input_ids.shape, COUNT),
                loss_weights=self._allocate(self.input_ids.shape, WEIGHT),
            )
        return self._rows


class Ring:
    """Memory for `size` batches; the n-th batch gets the memory of the one `size` before it."""

    def __init__(self, size: int, make: Callable[[], Memory]) -> None:
        self._make = make
        self._places: list[Memory | None] = [None] * size

    def __getitem__(self, number: int) -> Memory:
        place = number % len(self._places)
        memory = self._places[place]
        if memory is None:
            memory = self._places[place] = self._make()
        return memory
