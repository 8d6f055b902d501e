"""Property 14: a bijection with an inverse, for every length; and it looks random."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.order import permutation
from tokenreel.order.permutation import MAX_LENGTH, Permutation, walk_reference

SIZES = [100, 4_096, 10**6, 10**12, 2**62]


def reference(one: Permutation, values: np.ndarray, *, backward: bool) -> np.ndarray:
    walked = np.empty(len(values), np.int64)
    a, b = one.sides
    walk_reference(values, walked, one.length, a, b, one.round_keys, backward=backward)
    return walked


@pytest.mark.parametrize("first", range(1, 400, 50))
def test_every_short_length_is_permuted(first: int) -> None:
    for length in range(first, first + 50):
        one = Permutation(length, key=length)
        everything = np.arange(length)
        rows = one.forward(everything)
        assert rows.dtype == np.int64
        assert np.array_equal(np.sort(rows), everything)
        assert np.array_equal(one.inverse(rows), everything)
        assert np.array_equal(one.forward(one.inverse(everything)), everything)


@given(
    length=st.integers(1, MAX_LENGTH) | st.integers(0, 63).map(lambda bits: 2**bits),
    key=st.integers(0, 2**64 - 1),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_the_inverse_inverts_and_numpy_does_what_the_kernel_does(
    length: int, key: int, data: st.DataObject
) -> None:
    one = Permutation(length, key)
    inside = st.integers(0, length - 1)
    values = np.array(data.draw(st.lists(inside, min_size=1, max_size=20)), np.int64)
    rows = one.forward(values)
    assert rows.min() >= 0
    assert int(rows.max()) < length
    assert np.array_equal(one.inverse(rows), values)
    assert len(set(rows.tolist())) == len(set(values.tolist()))
    assert np.array_equal(reference(one, values, backward=False), rows)
    assert np.array_equal(reference(one, rows, backward=True), values)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 1000, 2**32 + 1, MAX_LENGTH])
def test_the_sides_cover_the_length_and_hardly_more(length: int) -> None:
    a, b = Permutation(length, key=0).sides
    assert a * b >= length
    assert max(a, b) < 2**32
    assert a * b <= max(length + 2 * math.isqrt(length) + 2, 64)


def test_the_ends_of_the_longest_range_come_back() -> None:
    one = Permutation(MAX_LENGTH, key=5)
    ends = np.array([0, 1, MAX_LENGTH // 2, MAX_LENGTH - 2, MAX_LENGTH - 1])
    assert one.inverse(one.forward(ends)).tolist() == ends.tolist()


@pytest.mark.parametrize(
    ("length", "key", "golden"),
    [
        (1, 0, [0]),
        (10, 1, [3, 5, 9, 7, 2, 4, 1, 0, 6, 8]),
        (1000, 2, [681, 419, 962, 210, 735, 481, 274, 933, 870, 272]),
        (10**12, 3, [427628505203, 853698941276, 633559896439, 766963098349]),
        (2**63, 4, [912788186691272563, 7579218625220844889, 4332114041220076976]),
    ],
)
def test_the_order_of_version_2_never_changes(length: int, key: int, golden: list[int]) -> None:
    assert permutation.VERSION == 2
    first = np.arange(len(golden))
    assert Permutation(length, key).forward(first).tolist() == golden


@pytest.mark.parametrize("length", [0, -1, MAX_LENGTH + 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(ConfigError, match=r"bad length of a permutation \(expected 1 to 2\*\*63"):
        Permutation(length, key=1)


@pytest.mark.parametrize("value", [-1, 10])
def test_a_value_outside_is_refused(value: int) -> None:
    one = Permutation(10, key=1)
    with pytest.raises(IndexError, match=r"outside \[0, 10\)"):
        one.forward(np.array([3, value]))
    with pytest.raises(IndexError, match=r"outside \[0, 10\)"):
        one.inverse(np.array([3, value]))


def test_nothing_is_permuted_to_nothing() -> None:
    assert Permutation(10, key=1).forward(np.empty(0, np.int64)).tolist() == []


def surprise(counts: np.ndarray) -> float:
    """Return by how many standard deviations a chi-square of equal cells exceeds its mean."""
    expected = counts.sum() / len(counts)
    freedom = len(counts) - 1
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    return (chi_square - freedom) / math.sqrt(2 * freedom)


@pytest.mark.skipif(native.extension() is None, reason="the same in numpy, in a minute")
@pytest.mark.parametrize("length", [3, 4, 5])
def test_every_permutation_of_a_few_comes_equally_often(length: int) -> None:
    cells = {order: i for i, order in enumerate(itertools.permutations(range(length)))}
    counts = np.zeros(len(cells), np.int64)
    for key in range(100 * len(cells)):
        counts[cells[tuple(Permutation(length, key).forward(np.arange(length)).tolist())]] += 1
    assert abs(surprise(counts)) < 4


@pytest.mark.parametrize("length", SIZES)
def test_first_values_over_keys_are_spread_evenly(length: int) -> None:
    first = [Permutation(length, key).forward(np.array([0, 1, length - 1])) for key in range(4000)]
    for values in np.array(first).T:
        assert abs(surprise(spread(values, length, cells=50))) < 4


def spread(values: np.ndarray, length: int, *, cells: int) -> np.ndarray:
    """Count values in so many equal parts of the range."""
    shift = max(length.bit_length() - 50, 0)
    return np.bincount((values >> shift) * cells // (length >> shift), minlength=cells)[:cells]


@pytest.mark.parametrize("length", SIZES)
def test_successive_positions_show_no_structure(length: int) -> None:
    rounds, at_once = (200, 100) if length <= 4096 else (4, 5000)
    rows = np.array([Permutation(length, key).forward(np.arange(at_once)) for key in range(rounds)])
    centred = rows / length - 0.5
    for lag in (1, 2, 3, 7):
        correlation = float((centred[:, lag:] * centred[:, :-lag]).mean() * 12)
        # Without replacement, successive values of a short range repel each other a little.
        assert abs(correlation + 1 / length) < 4 / math.sqrt(rows.size)
        steps = (rows[:, lag:] - rows[:, :-lag]) % length
        assert abs(surprise(spread(steps[steps > 0], length, cells=25)[1:-1])) < 4
    for bit in range(4 if length >= 4096 else 0):
        low = (rows >> bit) & 1
        assert abs(low.mean() - 0.5) < 2.5 / math.sqrt(rows.size)
        together = 2 * low[:, 1:] + low[:, :-1]
        assert abs(surprise(np.bincount(together.ravel(), minlength=4))) < 4.5


@pytest.mark.parametrize("length", SIZES[2:])
def test_neither_half_of_the_network_follows_the_position(length: int) -> None:
    """What differs in one half of a position only is as far apart as anything else."""
    one = Permutation(length, key=9)
    a, b = one.sides
    by_right = one.forward(np.arange(5000) % min(b, 5000))
    by_left = one.forward((np.arange(min(a - 1, 5000))) * b)
    for rows in (by_right[: min(b, 5000)], by_left):
        for half, side in ((rows // b, a), (rows % b, b)):
            cells = 20
            assert abs(surprise(spread(half, side, cells=cells))) < 4.5
            steps = np.diff(half) % side
            assert abs(surprise(spread(steps, side, cells=cells))) < 4.5


def test_neighbouring_keys_have_nothing_in_common() -> None:
    everything = np.arange(1000)
    one = Permutation(1000, key=1).forward(everything)
    for key in range(2, 30):
        assert np.count_nonzero(one == Permutation(1000, key).forward(everything)) < 8
