"""Packing: what the kernel, the reference and a naive oracle agree on."""

from __future__ import annotations

import resource
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.rows.packing import METHODS, pack, pack_reference

Rows = list[list[int]]


@pytest.fixture
def kernel() -> ModuleType:
    extension = native.extension()
    if extension is None:
        pytest.skip("the extension is not built or not wanted")
    return extension


def naive(lengths: list[int], capacity: int, method: str) -> Rows:
    """Look at every row for every length: what the words of the module's docstring say."""
    rows: Rows = []
    room: list[int] = []
    filled_at: list[int] = []
    items = list(range(len(lengths)))
    if method != "sequential":
        items.sort(key=lambda item: (-lengths[item], item))
    for time, item in enumerate(items):
        open_rows = [row for row in range(len(rows)) if room[row] >= lengths[item]]
        if method == "best_fit":
            open_rows.sort(key=lambda row: (room[row], -filled_at[row]))
        if method == "sequential":
            open_rows = [row for row in open_rows if row == len(rows) - 1]
        if method == "single":
            open_rows = []
        if not open_rows:
            rows.append([])
            room.append(capacity)
            filled_at.append(time)
            open_rows = [len(rows) - 1]
        row = open_rows[0]
        rows[row].append(item)
        room[row] -= lengths[item]
        filled_at[row] = time
    return sorted(map(sorted, rows))  # by their first items


def as_rows(packed: tuple[np.ndarray, np.ndarray]) -> Rows:
    row_offsets, order = packed
    assert row_offsets.dtype == order.dtype == np.int64
    return [part.tolist() for part in np.split(order, row_offsets[1:-1])] if len(order) else []


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], int]:
    # Above 64 · 64 · 2 the upper level of the bitset has several words.
    capacity = draw(st.one_of(st.integers(1, 40), st.integers(60, 130), st.integers(4000, 20_000)))
    edges = st.sampled_from([1, (capacity + 1) // 2, max(capacity - 1, 1), capacity])
    length = st.one_of(st.integers(1, capacity), edges, st.integers(1, min(capacity, 9)))
    return draw(st.lists(length, max_size=60)), capacity


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_reference_and_dispatch_do_what_the_words_say(
    method: str, problem: tuple[list[int], int]
) -> None:
    lengths, capacity = problem
    items = np.array(lengths, np.int64)
    expected = naive(lengths, capacity, method)
    assert as_rows(pack_reference(items, capacity, method=method)) == expected
    assert as_rows(pack(items, capacity, method=method)) == expected


@pytest.mark.parametrize("method", METHODS)
def test_kernel_equals_reference_on_many_lengths(kernel: ModuleType, method: str) -> None:
    generator = np.random.default_rng(3)
    for capacity in (1, 63, 64, 65, 2049, 131_072):
        lengths = generator.integers(1, capacity + 1, 5000) // generator.integers(1, 9, 5000)
        lengths = np.maximum(lengths, 1)
        for ours, expected in zip(
            pack(lengths, capacity, method=method),
            pack_reference(lengths, capacity, method=method),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=20, deadline=None)
@given(problem=problems())
def test_every_length_is_packed_once_and_no_row_overflows(
    method: str, problem: tuple[list[int], int]
) -> None:
    lengths, capacity = problem
    row_offsets, order = pack(np.array(lengths, np.int64), capacity, method=method)
    assert sorted(order.tolist()) == list(range(len(lengths)))
    sums = [sum(lengths[item] for item in row) for row in as_rows((row_offsets, order))]
    assert all(0 < total <= capacity for total in sums)
    assert row_offsets[0] == 0
    assert row_offsets[-1] == len(lengths)


@pytest.mark.parametrize("method", ["best_fit", "first_fit"])
def test_equal_lengths_keep_their_order(method: str) -> None:
    row_offsets, order = pack(np.full(1000, 3), 7, method=method)
    assert order.tolist() == list(range(1000))
    assert np.diff(row_offsets).tolist() == [2] * 500


def test_of_rows_with_equal_room_best_fit_takes_the_one_filled_last() -> None:
    row_offsets, order = pack(np.array([6, 6, 6, 3]), 9)
    assert as_rows((row_offsets, order)) == [[0], [1], [2, 3]]


def test_of_rows_that_hold_it_first_fit_takes_the_first() -> None:
    assert as_rows(pack(np.array([6, 6, 6, 3]), 9, method="first_fit")) == [[0, 3], [1], [2]]


def test_lognormal_lengths_fill_the_rows() -> None:
    generator = np.random.default_rng(7)
    lengths = np.exp(generator.normal(np.log(500), 1.0, 100_000)).astype(np.int64).clip(1, 2049)
    for method, least in (("best_fit", 0.999), ("first_fit", 0.999), ("sequential", 0.7)):
        row_offsets, _ = pack(lengths, 2049, method=method)
        assert lengths.sum() / ((len(row_offsets) - 1) * 2049) > least


@pytest.mark.parametrize("method", [method for method in METHODS if method != "single"])
def test_a_row_far_longer_than_all_items_costs_no_more_than_one_that_just_holds_them(
    method: str,
) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    room = pages * resource.getpagesize() + 2**30  # four bytes for each token would be 8 GiB
    resource.setrlimit(resource.RLIMIT_AS, (room, limits[1]))
    try:
        longest = pack(np.array([5, 6, 7]), 2**31 - 1, method=method)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert as_rows(longest) == as_rows(pack(np.array([5, 6, 7]), 18, method=method)) == [[0, 1, 2]]
    assert len(as_rows(pack(np.array([5, 6, 7]), 17, method=method))) == 2


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<i4", ">i8", "<u8"])
def test_any_integer_type_of_lengths_gives_the_same(dtype: str) -> None:
    lengths = np.array([5, 200, 30, 255, 1], dtype)
    strided = np.repeat(lengths, 2)[::2]
    assert as_rows(pack(strided, 256)) == naive([5, 200, 30, 255, 1], 256, "best_fit")


@pytest.mark.parametrize(
    ("lengths", "capacity", "message"),
    [
        ([3, 0], 4, r"length 1 does not go into a row \(expected 1 to 4, got 0\); cut or leave"),
        ([3, 5], 4, r"length 1 does not go into a row \(expected 1 to 4, got 5\)"),
        ([-1], 4, r"length 0 does not go into a row \(expected 1 to 4, got -1\)"),
        ([2**40], 4, r"length 0 does not go into a row"),
        ([1], 0, r"no row has this capacity \(expected 1 to 2,147,483,647, got 0\)"),
        ([1], 2**31, r"no row has this capacity"),
    ],
)
def test_what_does_not_fit_is_refused(lengths: list[int], capacity: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pack(np.array(lengths), capacity)


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"best_fit or first_fit or sequential or single, got 'worst_fit'"
    ):
        pack(np.array([1]), 2, method="worst_fit")


@pytest.mark.parametrize(
    ("lengths", "capacity", "method", "offsets", "order"),
    [
        ([0], 4, "best_fit", 2, 1),
        ([5], 4, "first_fit", 2, 1),
        ([1], 0, "best_fit", 2, 1),
        ([1], 2**31, "best_fit", 2, 1),
        ([1], 4, "other", 2, 1),
        ([1], 4, "best_fit", 1, 1),
        ([1], 4, "best_fit", 2, 0),
    ],
)
def test_the_kernel_checks_before_it_writes(
    kernel: ModuleType, lengths: list[int], capacity: int, method: str, offsets: int, order: int
) -> None:
    row_offsets, numbers = np.full(offsets, -7), np.full(order, -7)
    with pytest.raises(ValueError, match="pack: "):
        kernel.pack(np.array(lengths, np.uint32), capacity, method, row_offsets, numbers)
    assert set(row_offsets.tolist() + numbers.tolist()) == {-7}
