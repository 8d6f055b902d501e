"""Keys and scrambled numbers: the same for ever, on every machine, related to nothing."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.seeds import derive_key, scramble, shuffled


def test_the_order_is_fixed_for_ever() -> None:
    assert shuffled(10, derive_key("test", 42, 0)).tolist() == [3, 6, 8, 1, 2, 9, 4, 0, 7, 5]


@given(st.integers(0, 40), st.integers(0, 2**70), st.integers(0, 2**40))
def test_the_order_is_that_of_whole_numbers_without_overflow(
    length: int, seed: int, block: int
) -> None:
    digest = hashlib.sha256(f"tokenreel test\0{seed}\0{block}".encode()).digest()
    key, mask = int.from_bytes(digest[:8], "little"), (1 << 64) - 1

    def mixed(number: int) -> int:
        z = (number + key) * 0x9E3779B97F4A7C15 & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    expected = sorted(range(length), key=mixed)
    assert shuffled(length, derive_key("test", seed, block)).tolist() == expected


def test_parts_of_a_key_are_mixed_not_added() -> None:
    keys = {derive_key("test", seed, block) for seed in range(30) for block in range(30)}
    assert len(keys) == 900
    assert derive_key("test", "1", "2") != derive_key("test", "12", "")


def test_places_are_even_over_many_keys() -> None:
    first = [int(shuffled(8, derive_key("test", 7, block))[0]) for block in range(4000)]
    counts = np.bincount(first, minlength=8)
    assert counts.min() > 400 and counts.max() < 600


def test_scrambled_numbers_fill_the_range_evenly() -> None:
    counts = np.bincount((scramble(np.arange(64_000), 1) >> np.uint64(58)).astype(np.int64))
    assert len(counts) == 64 and counts.min() > 850 and counts.max() < 1150
