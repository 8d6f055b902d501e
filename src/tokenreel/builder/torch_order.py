"""Orders and choices drawn from a torch.Generator, where a contract demands it.

For builds a generator is made anew from a key for every draw, so a draw depends on
its key alone and a build can be resumed in front of any of them; rows of a batch are
drawn from the generator that is given, and no other. torch is imported when the first
draw is made; 16 bytes a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.errors import ConfigError, MissingExtraError


def torch_permutation(length: int, key: int) -> np.ndarray:
    """Return a permutation of range(length), int64, by torch.randperm.

    >>> sorted(torch_permutation(5, 7).tolist())
    [0, 1, 2, 3, 4]
    """
    torch = _torch()
    generator = torch.Generator().manual_seed(key)
    order: np.ndarray = torch.randperm(length, generator=generator).numpy()
    return order


def choose_validation(num_documents: int, val_frac: float, *, seed: int) -> np.ndarray:
    """Return which documents are validation, in order: bool [num_documents].

    They are val_frac of all, rounded; of two or more documents at least one, unless
    val_frac is 0, and never all.

    >>> int(choose_validation(10, 0.2, seed=1).sum())
    2
    """
    if not 0 <= val_frac < 1:
        raise ConfigError("bad val_frac", expected="0 <= val_frac < 1", actual=val_frac)
    count = round(num_documents * val_frac)
    if val_frac:
        count = min(max(count, 1), num_documents - 1)
    chosen = np.zeros(num_documents, bool)
    chosen[torch_permutation(num_documents, seed)[: max(count, 0)]] = True
    return chosen


def draw_rows(num_rows: int, count: int, *, generator: Any) -> np.ndarray:
    """Return `count` of the numbers below num_rows, int64, each equally likely each time."""
    torch = _torch()
    if count < 1:
        raise ConfigError("a batch of no rows", where="B", expected=">= 1", actual=count)
    drawn = torch.randint(num_rows, (count,), generator=generator, device=generator.device)
    numbers: np.ndarray = drawn.cpu().numpy()
    return numbers


def as_tensors(*arrays: np.ndarray, device: str) -> Any:
    """Return the arrays as tensors on a device; on the CPU they keep their memory."""
    torch = _torch()
    return tuple(torch.from_numpy(array).to(device) for array in arrays)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", extra="torch", purpose="an order of torch's") from error
    return torch
