"""From arrays to tensors where the model is."""

from __future__ import annotations

import numpy as np
import torch


def on_device(arrays: tuple[np.ndarray, ...], device: str) -> tuple[torch.Tensor, ...]:
    """Return tensors over the arrays' own memory, or copies of them on another device."""
    tensors = tuple(map(torch.from_numpy, arrays))
    if device == "cpu":
        return tensors
    return tuple(tensor.to(device, non_blocking=True) for tensor in tensors)
