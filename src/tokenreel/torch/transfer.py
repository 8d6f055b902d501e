"""Batches on their way to a device, while the device still works on the one before.

A copy to a GPU runs on its own only from pinned memory, so batches for one are made there
and not copied on the host. torch's pinned memory is given out again when the copies from it
are done, so nothing has to be waited for here. A field that is one row repeated crosses
once, as a row.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from tokenreel.feed.buffers import Allocate
from tokenreel.torch.tensors import TensorBatch


def host_memory(device: torch.device) -> Allocate | None:
    """Return what allocates the batches that go to a device; None: as the feed does."""
    return partial(torch_memory, pin_memory=True) if device.type == "cuda" else None


def torch_memory(shape: tuple[int, ...], dtype: Any, *, pin_memory: bool = False) -> np.ndarray:
    """Return memory of torch's as an array, not filled; its own when nobody holds the array.

    >>> torch_memory((2, 3), np.float32).shape
    (2, 3)
    """
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return torch.empty(shape, dtype=kind, pin_memory=pin_memory).numpy()


class Transfer:
    """Moves batches to a device; on the CPU they stay where they are."""

    def __init__(self, device: torch.device | str | None) -> None:
        self.device = torch.device(device or "cpu")
        self._moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, batch: TensorBatch) -> TensorBatch:
        """Return the batch on the device; the copies may still be under way.

        >>> moved = Transfer("meta")({"input_ids": torch.zeros(2, 3).expand(2, 3)})
        >>> moved["input_ids"].device.type
        'meta'
        """
        if self.device.type == "cpu":
            return batch
        return {name: self._move(tensor) for name, tensor in batch.items()}

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_contiguous():
            return self._copy(tensor)
        kept = self._moved.get(id(tensor))  # the common rows of Tensors are the same objects
        if kept is None or kept[0] is not tensor or kept[1]._version:
            kept = self._moved[id(tensor)] = (tensor, self._repeated(tensor))
        return kept[1]

    @torch.inference_mode(False)  # such tensors would not count what is written into them
    def _repeated(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._copy(tensor[(0,) * (tensor.ndim - 1)]).expand(tensor.shape)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device.type == "cuda" and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)
