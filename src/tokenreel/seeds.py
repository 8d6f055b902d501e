"""Randomness without state: numbers mixed by hash, the same on every machine.

A key is made of a seed and a purpose by SHA-256, never by adding numbers, so that
(seed 1, epoch 1) and (seed 2, epoch 0) have nothing to do with each other.
`scramble` is the finaliser of SplitMix64, a bijection of 64-bit numbers: about a
nanosecond per number.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive_key(purpose: str, *parts: int | str) -> int:
    """Return a 64-bit key for a purpose and what it depends on.

    >>> derive_key("epoch", 1, 1) == derive_key("epoch", 2, 0)
    False
    """
    spelled = "\0".join([f"tokenreel {purpose}", *map(str, parts)])
    return int.from_bytes(hashlib.sha256(spelled.encode()).digest()[:8], "little")


def scramble(numbers: np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """Return a uint64 for each number, without visible relation to it or to its neighbours.

    `key` is one for all numbers, or an array that broadcasts with them.
    """
    with np.errstate(over="ignore"):
        mixed = numbers.astype(np.uint64) + np.asarray(key, np.uint64)
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def shuffled(length: int, key: int) -> np.ndarray:
    """Return a permutation of range(length), int64, in memory: 16 bytes a number.

    >>> sorted(shuffled(5, 7).tolist())
    [0, 1, 2, 3, 4]
    """
    return np.argsort(scramble(np.arange(length, dtype=np.uint64), key), kind="stable")
