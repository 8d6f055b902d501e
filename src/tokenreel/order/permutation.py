"""A shuffle of [0, n) that needs no memory: any position, either direction, at once.

A Feistel network over pairs (left, right) with left < a, right < b and a·b just above
n: each round adds a keyed hash of one half to the other, modulo its size. That is a
bijection for every a and b, undone by subtracting in reverse. A value that lands
outside [0, n) is put through again until it does not; with a and b close to √n that
happens once in √n times. Up to n = 2⁶³. About 25 ns a position in C, 150 in numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.seeds import scramble

VERSION = 2
ROUNDS = 8
SMALLEST_SIDE = 8  # a smaller one would leave too few permutations of a short range
MAX_LENGTH = 2**63


@dataclass(frozen=True)
class Permutation:
    """The permutation of range(length) that a key stands for.

    >>> permutation = Permutation(10, key=1)
    >>> rows = permutation.forward(np.arange(10))
    >>> sorted(rows.tolist()) == list(range(10))
    True
    >>> permutation.inverse(rows).tolist() == list(range(10))
    True
    """

    length: int
    key: int

    def __post_init__(self) -> None:
        if not 1 <= self.length <= MAX_LENGTH:
            raise ConfigError(
                "bad length of a permutation", expected="1 to 2**63", actual=self.length
            )

    @cached_property
    def sides(self) -> tuple[int, int]:
        """The sizes a and b of the two halves: a·b >= length."""
        return sides_of(self.length)

    @cached_property
    def round_keys(self) -> np.ndarray:
        """One 64-bit key per round, uint64 [ROUNDS]."""
        return round_keys_of(np.array(self.key, np.uint64))

    def forward(self, positions: np.ndarray) -> np.ndarray:
        """Return where each position goes, int64."""
        return self._walk(positions, backward=False)

    def inverse(self, rows: np.ndarray) -> np.ndarray:
        """Return the position that goes to each row, int64."""
        return self._walk(rows, backward=True)

    def _walk(self, values: np.ndarray, *, backward: bool) -> np.ndarray:
        numbers = np.ascontiguousarray(values, np.int64)
        if numbers.size and not (0 <= int(numbers.min()) <= int(numbers.max()) < self.length):
            raise IndexError(f"outside [0, {self.length:,})")
        if self.length == 1:  # there is one permutation, and the walk to it would be the longest
            return np.zeros_like(numbers)
        walked = np.empty_like(numbers)
        extension = native.extension()
        a, b = self.sides
        if extension is None:
            walk_reference(numbers, walked, self.length, a, b, self.round_keys, backward=backward)
        else:
            extension.permute(numbers, walked, self.length, a, b, self.round_keys, backward)
        return walked


def sides_of(length: int) -> tuple[int, int]:
    """Return the sizes of the two halves of a permutation of range(length)."""
    a = max(math.isqrt(length - 1) + 1, SMALLEST_SIDE)
    return a, max(-(-length // a), SMALLEST_SIDE)


def round_keys_of(keys: np.ndarray) -> np.ndarray:
    """Return the keys of all rounds of permutations with these keys, uint64 [..., ROUNDS]."""
    return scramble(np.arange(ROUNDS), keys[..., None])


def walk_reference(
    values: np.ndarray,
    walked: np.ndarray,
    length: int,
    a: int,
    b: int,
    keys: np.ndarray,
    *,
    backward: bool,
) -> None:
    """Write the permuted values into `walked`; the kernel does the same."""
    step = _backward if backward else _forward
    current = values.astype(np.uint64)
    outside = np.ones(len(values), bool)
    while outside.any():
        current[outside] = step(current[outside], a, b, keys)
        outside = current >= np.uint64(length)
    walked[:] = current.astype(np.int64)


def _forward(values: np.ndarray, a: int, b: int, keys: np.ndarray) -> np.ndarray:
    left, right = values // np.uint64(b), values % np.uint64(b)
    for number in range(0, ROUNDS, 2):
        left = _added(left, _round(right, keys[number], a), a)
        right = _added(right, _round(left, keys[number + 1], b), b)
    return left * np.uint64(b) + right


def _backward(values: np.ndarray, a: int, b: int, keys: np.ndarray) -> np.ndarray:
    left, right = values // np.uint64(b), values % np.uint64(b)
    for number in range(ROUNDS - 2, -1, -2):
        right = _added(right, np.uint64(b) - _round(left, keys[number + 1], b), b)
        left = _added(left, np.uint64(a) - _round(right, keys[number], a), a)
    return left * np.uint64(b) + right


def _round(half: np.ndarray, key: np.uint64, size: int) -> np.ndarray:
    """Hash a half to [0, size): the upper 32 bits of a 64-bit mix, scaled by multiplication."""
    with np.errstate(over="ignore"):
        mixed = (half ^ key) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(29)
    return ((mixed >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32)


def _added(half: np.ndarray, amount: np.ndarray, size: int) -> np.ndarray:
    total = half + amount
    return np.where(total >= np.uint64(size), total - np.uint64(size), total)
