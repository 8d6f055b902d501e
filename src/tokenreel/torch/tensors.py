"""Batches as dicts of tensors over the same memory: nothing is copied, nothing is cast.

Fields that are the same for all rows (plain windows have one segment, positions 0 to T-1
and weights of 1) are tensors with one row of memory, made once; torch asks to clone them
before writing, and where it does not (fill_), the next batch gets new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tokenreel.feed.batch import Batch
from tokenreel.feed.fields import ALL, FIELDS, known_fields

TensorBatch = dict[str, torch.Tensor]


class Tensors:
    """Makes tensors of batches of one shape."""

    def __init__(self, fields: Sequence[str] = FIELDS) -> None:
        self.fields = known_fields(fields, known=ALL)
        self._common: dict[str, tuple[np.ndarray, torch.Tensor]] = {}

    def __call__(self, batch: Batch) -> TensorBatch:
        """Return the fields of a batch.

        >>> rows = np.arange(6).reshape(2, 3)
        >>> batch = Batch(step=0, input_ids=rows, labels=rows, loss_weights=rows,
        ...     segment_ids=rows, position_ids=rows, source_ids=rows[:, 0])
        >>> made = Tensors(["input_ids", "attention_mask"])(batch)
        >>> made["input_ids"].data_ptr() == rows.ctypes.data
        True
        >>> made["attention_mask"].tolist()
        [[False, True, True], [True, True, True]]
        """
        made = {}
        for name in self.fields:  # a call for each of them would be a tenth of their time
            array = getattr(batch, name)
            if name in batch.shared:
                made[name] = self._common_field(name, array)
            elif name == "records":
                made[name] = array  # a list of objects, in a dict that else has tensors
            else:
                made[name] = torch.from_numpy(array)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the names of the fields: the common rows belong to a feed of this process."""
        return Tensors, (self.fields,)

    def _common_field(self, name: str, array: np.ndarray) -> torch.Tensor:
        """Return a tensor of a field that many batches share, and whose array is read-only."""
        kept = self._common.get(name)
        if kept is None or kept[0] is not array or kept[1]._version:
            kept = self._common[name] = (array, _repeated(array))
        return kept[1]


@torch.inference_mode(False)  # such tensors would not count what is written into them
def _repeated(array: np.ndarray) -> torch.Tensor:
    """Return a copy of an array whose rows are all the same, with memory for one."""
    row = array[(0,) * (array.ndim - 1)].copy()
    return torch.from_numpy(row).expand(array.shape)
