"""An order drawn from a torch.Generator, for the shuffle "torch-buffer" of contract 002.

A generator is made anew from a key for every draw, so a draw depends on its key alone and a
build can be resumed in front of any of them. torch is imported when the first draw is made;
16 bytes a number.
"""

from __future__ import annotations

import numpy as np

from tokenreel.errors import MissingExtraError


def torch_permutation(length: int, key: int) -> np.ndarray:
    """Return a permutation of range(length), int64, by torch.randperm.

    >>> sorted(torch_permutation(5, 7).tolist())
    [0, 1, 2, 3, 4]
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", extra="torch", purpose="an order of torch's") from error
    generator = torch.Generator().manual_seed(key)
    order: np.ndarray = torch.randperm(length, generator=generator).numpy()
    return order
