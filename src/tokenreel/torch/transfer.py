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

from tokenreel.errors import ConfigError
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


def usable_device(device: torch.device | str) -> torch.device:
    """Return the device; ConfigError if torch knows none of that name, or cannot use it here."""
    try:
        made = torch.device(device)
        if made.type == "cuda":  # asked without starting it, which takes time and memory
            _check_gpu(made)
        else:
            torch.empty(0, device=made)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).split("\n", 1)[0].split(". ", 1)[0]
        raise ConfigError(
            f"torch cannot use the device {str(device)!r}: {reason:.200}",
            remedy='use device="cpu", or a device that this machine and this torch have',
        ) from None
    return made


def _check_gpu(device: torch.device) -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) < count:
        return
    if count:
        remedy = "choose one of those that are there"
    elif torch.version.cuda is None and torch.version.hip is None:
        remedy = 'this torch is built for the CPU alone: install one for GPUs, or use device="cpu"'
    else:
        remedy = 'look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use device="cpu"'
    raise ConfigError(
        f"torch sees no GPU for the device {str(device)!r}",
        expected=f"cuda:0 to cuda:{count - 1}" if count else None,
        remedy=remedy,
    )


class Transfer:
    """Moves batches to a device; on the CPU they stay where they are."""

    def __init__(self, device: torch.device | str | None) -> None:
        self.device = usable_device(device or "cpu")
        self._moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, batch: TensorBatch) -> TensorBatch:
        """Return the batch on the device; the copies may still be under way.

        >>> moved = Transfer("meta")({"input_ids": torch.zeros(2, 3).expand(2, 3)})
        >>> moved["input_ids"].device.type
        'meta'
        """
        if self.device.type == "cpu":
            return batch
        return {
            name: self._move(tensor) if isinstance(tensor, torch.Tensor) else tensor  # records
            for name, tensor in batch.items()
        }

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
