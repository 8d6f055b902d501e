"""Property 15: every prefix holds each source's share, in closed form, and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.order.making import mixture_of, mixtures

from tokenreel.errors import ConfigError
from tokenreel.order import mixture
from tokenreel.order.mixture import Mixture
from tokenreel.order.order import Order, SourceRows
from tokenreel.order.schedule import Change, make_schedule, normalised
from tokenreel.seeds import derive_key

RUN = 3000
ANNEALED = make_schedule((0.7, 0.3, 0.0), [Change(start=1000, shares=(0.2, 0.3, 0.5), ramp=500)])


def prefix_counts(sources: np.ndarray, num_sources: int) -> np.ndarray:
    """Return how many rows of each source are in each prefix, [n + 1, S]."""
    marks = sources[:, None] == np.arange(num_sources)
    return np.concatenate((np.zeros((1, num_sources), int), np.cumsum(marks, axis=0)))


@given(one=mixtures())
@settings(max_examples=20, deadline=None)
def test_every_prefix_holds_each_share_to_within_the_stated_bound(one: Mixture) -> None:
    sources, _ = one.locate(0, RUN)
    num_sources = one.schedule.num_sources
    counts = prefix_counts(sources, num_sources)
    times = np.arange(RUN + 1, dtype=float)
    for source in range(num_sources):
        due = one.schedule.integral(source, times)
        bound = 1 + num_sources * one.schedule.largest_shares[source]  # twice that with changes
        assert np.abs(counts[:, source] - due).max() < bound


@given(one=mixtures())
@settings(max_examples=20, deadline=None)
def test_each_source_gives_its_rows_in_order_and_none_twice(one: Mixture) -> None:
    sources, numbers = one.locate(0, RUN)
    assert sources.dtype == np.int32
    for source in range(one.schedule.num_sources):
        mine = numbers[sources == source]
        assert np.array_equal(mine, np.arange(len(mine)))


@given(one=mixtures(), start=st.integers(0, RUN - 1), count=st.integers(1, 300))
@settings(max_examples=25, deadline=None)
def test_any_part_is_a_slice_of_the_whole(one: Mixture, start: int, count: int) -> None:
    whole = one.locate(0, RUN + 300)
    part = one.locate(start, count)
    for expected, actual in zip(whole, part, strict=True):
        assert np.array_equal(actual, expected[start : start + count])


@given(one=mixtures(), start=st.integers(0, 10**12) | st.integers(0, 2**44 - 200))
@settings(max_examples=25, deadline=None)
def test_positions_undo_locate_however_far(one: Mixture, start: int) -> None:
    sources, numbers = one.locate(start, 200)
    first, _ = one.locate(start + 100, 100)
    assert np.array_equal(sources[100:], first)
    counts = one.counts(start)
    assert int(counts.sum()) == start
    for source in np.unique(sources):
        mine = np.flatnonzero(sources == source)
        positions = one.positions(int(source), numbers[mine])
        assert np.array_equal(positions[positions >= 0], start + mine[positions >= 0])
        assert (positions >= 0).all() or start > 2**43
        assert counts[source] == numbers[mine[0]]


@given(one=mixtures(), position=st.integers(0, RUN))
@settings(max_examples=20, deadline=None)
def test_counts_are_those_of_the_prefix(one: Mixture, position: int) -> None:
    sources, _ = one.locate(0, RUN)
    expected = prefix_counts(sources, one.schedule.num_sources)[position]
    assert one.counts(position).tolist() == expected.tolist()


def test_a_source_of_a_billionth_is_counted_far_out() -> None:
    names = ["most", "rare", "never"]
    one = mixture_of(make_schedule(normalised({"most": 1, "rare": 1e-9}, names)))
    counts = one.counts(10**12)
    assert int(counts.sum()) == 10**12
    assert abs(int(counts[1]) - 1000) <= 1
    assert counts[2] == 0
    # A row beyond every run has no position, and no overflow makes one up.
    assert one.positions(1, np.array([0, 10**12])).tolist() == [
        int(one.positions(1, np.array([0]))[0]),
        -1,
    ]
    assert one.positions(2, np.array([0, 5])).tolist() == [-1, -1]


def test_a_source_that_fades_out_stops_and_one_that_fades_in_starts() -> None:
    schedule = make_schedule((1.0, 0.0), [Change(start=100, shares=(0.0, 1.0), ramp=200)])
    sources, _ = mixture_of(schedule).locate(0, 1000)
    assert not sources[:100].any()
    assert sources[302:].all()
    assert abs(int((sources == 0).sum()) - 200) <= 1
    assert mixture_of(schedule).positions(0, np.array([250])).tolist() == [-1]


def test_the_order_within_a_mixture_looks_random() -> None:
    one = mixture_of(make_schedule((0.5, 0.5)))
    sources, _ = one.locate(0, 20_000)
    runs = np.diff(np.flatnonzero(np.diff(sources)))
    assert set(runs.tolist()) == {1, 2}  # neither strictly in turns nor in blocks
    blocks = sources[: 8 * 2500].reshape(-1, 8)
    assert len(np.unique(blocks, axis=0)) == 16


NEAR_SOURCES = "201010100210201200011020"
NEAR_NUMBERS = (
    "20 820 360 821 361 822 362 823 824 21 363 825 22 826 364 23 827 828 829 365 366 830 24 831"
)
FAR_SOURCES = "012212220102122102212102"


def test_the_order_of_version_2_never_changes() -> None:
    assert mixture.VERSION == 2
    near = mixture_of(ANNEALED).locate(1200, 24)
    far = mixture_of(ANNEALED).locate(10**12, 24)
    assert "".join(map(str, near[0].tolist())) == NEAR_SOURCES
    assert " ".join(map(str, near[1].tolist())) == NEAR_NUMBERS
    assert "".join(map(str, far[0].tolist())) == FAR_SOURCES
    assert far[1][:4].tolist() == [200000000625, 300000000000, 499999999375, 499999999376]
    assert far[1][20:].tolist() == [499999999385, 300000000006, 200000000629, 499999999386]


@pytest.mark.parametrize("start", [-1, 2**44 - 5])
def test_positions_out_of_range_are_refused(start: int) -> None:
    with pytest.raises(ConfigError, match=r"position out of range \(expected 0 to 2\*\*44"):
        mixture_of(ANNEALED).locate(start, 10)
    with pytest.raises(ConfigError, match=r"position out of range \(expected 0 to 2\*\*44"):
        mixture_of(ANNEALED).counts(start if start < 0 else start + 10)


@given(
    one=mixtures(),
    start=st.integers(0, RUN) | st.integers(0, 2**44 - 400),
    count=st.integers(1, 300),
)
@settings(max_examples=40, deadline=None)
def test_the_kernel_mixes_as_numpy_does(one: Mixture, start: int, count: int) -> None:
    assert one.counts(start).tolist() == one.counts_reference(start).tolist()
    for expected, actual in zip(
        one.locate_reference(start, count), one.locate(start, count), strict=True
    ):
        assert np.array_equal(actual, expected)
        assert actual.dtype == expected.dtype


def slow_run(
    weights: list[list[float]], starts: list[int], keys: list[int], num_rows: int
) -> list[tuple[int, int]]:
    """Return (source, number) of each position, by sorting every row there could be.

    Weights change at positions; written from the words of the docstring, a row at a time.
    """
    given = [0] * len(keys)
    owed = [0.0] * len(keys)
    run: list[tuple[int, int]] = []
    for change, start in enumerate(starts):
        stop = starts[change + 1] if change + 1 < len(starts) else num_rows
        shares = [w / math.fsum(weights[change]) for w in weights[change]]
        waiting = []
        for source, share in enumerate(shares):
            for more in range(num_rows + 30 if share else 0):
                number = given[source] + more
                hashed = splitmix(number + keys[source]) >> 11
                margin = share / 64
                jitter = margin + hashed * ((1 - 2 * margin) * 2.0**-53)
                waiting.append(((more + jitter - owed[source]) / share, source, number))
        shown = [(source, number) for _, source, number in sorted(waiting)[: stop - start]]
        run += shown
        for source, share in enumerate(shares):
            count = sum(s == source for s, _ in shown)
            given[source] += count
            owed[source] += share * (stop - start) - count
    return run


def splitmix(number: int) -> int:
    mixed = number * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


@given(
    weights=st.integers(2, 7).flatmap(
        lambda size: st.lists(
            st.lists(
                st.sampled_from([0.0, 0.05, 1.0, 3.0, 0.3]), min_size=size, max_size=size
            ).filter(any),
            min_size=1,
            max_size=4,
        )
    ),
    lengths=st.lists(st.integers(0, 25), min_size=4, max_size=4),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_the_run_is_all_rows_sorted_by_their_times(
    weights: list[list[float]], lengths: list[int], seed: int
) -> None:
    names = [str(number) for number in range(len(weights[0]))]
    shares = [tuple(w / math.fsum(row) for w in row) for row in weights]
    starts = [0, *np.cumsum(lengths).tolist()][: len(weights)]
    sources = [SourceRows(name=name, num_rows=10**6) for name in names]
    first = Order(sources, shares=shares[0], seed=seed)
    order = first.changed(list(zip(starts[1:], shares[1:], strict=True)))
    keys = [derive_key("mixture", seed, name) for name in names]
    found = zip(*(column.tolist() for column in order.numbers(0, 90)), strict=True)
    assert list(found) == slow_run(weights, starts, keys, 90)
