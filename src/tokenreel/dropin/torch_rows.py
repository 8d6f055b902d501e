"""What loaders ask of torch: rows drawn from a generator, arrays as tensors where the model is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.errors import ConfigError, MissingExtraError


def draw_rows(num_rows: int, count: int, *, generator: Any) -> np.ndarray:
    """Return `count` of the numbers below num_rows, int64, each equally likely each time."""
    torch = import_torch()
    if count < 1:
        raise ConfigError("a batch of no rows", where="B", expected=">= 1", actual=count)
    drawn = torch.randint(num_rows, (count,), generator=generator, device=generator.device)
    numbers: np.ndarray = drawn.cpu().numpy()
    return numbers


def on_device(arrays: tuple[np.ndarray, ...], device: str) -> Any:
    """Return tensors over the arrays' own memory, or copies of them on another device."""
    tensors = tuple(map(import_torch().from_numpy, arrays))
    if device == "cpu":
        return tensors
    return tuple(tensor.to(device, non_blocking=True) for tensor in tensors)


def import_torch() -> Any:
    """Return torch, or raise MissingExtraError."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", extra="torch", purpose="tokenreel.dropin") from error
    return torch
