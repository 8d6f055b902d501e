"""Property 16: epochs, and changes of shares in the middle of a run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.order.making import shares

from tokenreel.errors import ConfigError
from tokenreel.order.order import VERSIONS, Located, Order, SourceRows
from tokenreel.order.schedule import Change

A, B, C = (SourceRows(name=name, num_rows=n) for name, n in (("a", 7), ("b", 40), ("c", 1)))


def order_of(*sources: SourceRows, seed: int = 0, weights: tuple[float, ...] = ()) -> Order:
    equal = (1 / len(sources),) * len(sources)
    return Order(sources, shares=weights or equal, seed=seed)


def check_epochs(order: Order, located: Located) -> None:
    """Check that each source gives each row once per epoch, epochs in order."""
    for source, item in enumerate(order.sources):
        mine = located.source == source
        epochs, rows = located.epoch[mine], located.row[mine]
        assert np.array_equal(epochs, np.arange(len(rows)) // item.num_rows)
        whole = len(rows) - len(rows) % item.num_rows
        for epoch in rows[:whole].reshape(-1, item.num_rows):
            assert np.array_equal(np.sort(epoch), np.arange(item.num_rows))
        assert len(set(rows[whole:].tolist())) == len(rows) - whole


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    data=st.data(),
    seed=st.integers(-5, 2**70),
)
@settings(max_examples=20, deadline=None)
def test_in_an_epoch_each_row_comes_exactly_once(
    sizes: list[int], data: st.DataObject, seed: int
) -> None:
    sources = [SourceRows(name=str(i), num_rows=size) for i, size in enumerate(sizes)]
    order = Order(sources, shares=data.draw(shares(len(sizes))), seed=seed)
    check_epochs(order, order.locate(0, 600))


def test_the_same_seed_gives_the_same_order_and_another_another() -> None:
    one, same, other = (order_of(A, B, seed=seed).locate(0, 500) for seed in (1, 1, 2))
    assert np.array_equal(one.row, same.row)
    assert np.array_equal(one.source, same.source)
    assert not np.array_equal(one.row, other.row)
    assert not np.array_equal(one.source, other.source)


def test_epochs_are_unlike_each_other_and_unlike_those_of_the_next_seed() -> None:
    big = SourceRows(name="big", num_rows=500)
    one, two = (order_of(big, seed=seed).locate(0, 1000).row.reshape(2, 500) for seed in (1, 2))
    epochs = [one[0], one[1], two[0], two[1]]
    for i, first in enumerate(epochs):
        for second in epochs[i + 1 :]:
            assert np.count_nonzero(first == second) < 8


def test_sources_of_the_same_size_are_shuffled_apart() -> None:
    twins = [SourceRows(name=name, num_rows=500) for name in ("x", "y")]
    one, two = (order_of(twin).locate(0, 500).row for twin in twins)
    assert np.count_nonzero(one == two) < 8


def test_without_shuffling_rows_come_in_order_in_every_epoch() -> None:
    order = order_of(SourceRows(name="a", num_rows=5, shuffle=False))
    assert order.locate(3, 9).row.tolist() == [3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert order.positions(0, 3, epochs=range(3)) == [(0, 3), (1, 8), (2, 13)]


def test_a_source_without_more_epochs_ends_the_run_with_its_name() -> None:
    capped = SourceRows(name="chat", num_rows=10, max_epochs=2)
    order = order_of(capped)
    assert order.locate(0, 20).epoch.max() == 1
    with pytest.raises(ConfigError) as caught:
        order.locate(15, 10)
    assert str(caught.value) == (
        "source 'chat' has run out: all its rows were shown "
        "(expected at most 2 epochs of 10 rows); "
        "end the run earlier, give it less weight, or allow more epochs"
    )
    # What never comes is not found either.
    assert [epoch for epoch, _ in order.positions(0, 4, epochs=range(9))] == [0, 1]


@given(start=st.integers(0, 2000), data=st.data())
@settings(max_examples=20, deadline=None)
def test_every_row_is_found_where_it_comes(start: int, data: st.DataObject) -> None:
    order = Order((A, B, C), shares=data.draw(shares(3)), seed=3)
    located = order.locate(start, 40)
    for i in range(40):
        source, epoch = int(located.source[i]), int(located.epoch[i])
        found = order.positions(source, int(located.row[i]), epochs=range(epoch, epoch + 1))
        assert found == [(epoch, start + i)]


@given(
    changes=st.lists(st.integers(0, 150), min_size=1, max_size=4),
    data=st.data(),
    start=st.integers(0, 500),
)
@settings(max_examples=15, deadline=None)
def test_changed_shares_keep_the_past_and_lose_no_row(
    changes: list[int], data: st.DataObject, start: int
) -> None:
    order = Order((A, B, C), shares=data.draw(shares(3)), seed=11)
    position = 0
    for more in changes:
        position += more
        before = order.locate(0, max(position, 1))
        order = order.change(position, data.draw(shares(3)))
        after = order.locate(0, max(position, 1))
        for name in ("source", "epoch", "row"):
            assert np.array_equal(getattr(before, name)[:position], getattr(after, name)[:position])
    whole = order.locate(0, 600)
    check_epochs(order, whole)
    part = order.locate(start, 100)
    assert np.array_equal(part.row, whole.row[start : start + 100])
    assert np.array_equal(part.source, whole.source[start : start + 100])
    counts = np.bincount(whole.source[:start], minlength=3)
    assert order.counts(start).tolist() == counts.tolist()
    for i in range(0, 600, 37):
        source, epoch = int(whole.source[i]), int(whole.epoch[i])
        found = order.positions(source, int(whole.row[i]), epochs=range(epoch, epoch + 1))
        assert found == [(epoch, i)]


def test_shares_after_a_change_are_the_new_ones() -> None:
    order = order_of(A, B, weights=(0.9, 0.1)).change(1000, (0.2, 0.8))
    counts = order.counts(2000) - order.counts(1000)
    assert np.abs(counts - [200, 800]).max() <= 3
    assert np.abs(order.counts(1000) - [900, 100]).max() <= 3


def test_shares_cannot_be_changed_before_the_last_change() -> None:
    order = order_of(A, B).change(100, (0.5, 0.5))
    with pytest.raises(ConfigError) as caught:
        order.change(99, (0.1, 0.9))
    assert str(caught.value) == (
        "shares can only be changed after the last change (expected >= position 100, got 99)"
    )


def test_the_last_of_several_changes_at_one_position_holds() -> None:
    order = order_of(A, B)
    for position in (0, 100):
        twice = order.change(position, (0.9, 0.1)).change(position, (0.2, 0.8))
        once = order.change(position, (0.2, 0.8))
        for ours, expected in zip(
            twice.locate(0, 300).columns, once.locate(0, 300).columns, strict=True
        ):
            assert np.array_equal(ours, expected)


@pytest.mark.parametrize("start", [98, 99, 100, 101])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_few_positions_around_a_change_are_a_slice_of_the_whole(start: int, count: int) -> None:
    order = order_of(A, B).change(100, (0.2, 0.8)).change(101, (0.7, 0.3))
    whole, few = order.locate(0, 200), order.locate(start, count)
    for column, part in zip(whole.columns, few.columns, strict=True):
        assert np.array_equal(part, column[start : start + count])


@pytest.mark.parametrize("ramp", [0, 5])
def test_the_first_shares_are_those_before_every_change(ramp: int) -> None:
    changes = [Change(start=10, shares=(0.2, 0.8), ramp=ramp)]
    phased = Order((A, B), shares=(0.9, 0.1), changes=changes, seed=0)
    for order in (phased, phased.change(30, (0.5, 0.5))):
        assert order.first_shares.tolist() == [0.9, 0.1]
    assert Order((A, B), shares=None, seed=0).first_shares.tolist() == [7 / 47, 40 / 47]


def test_the_last_position_has_a_row_and_no_row_comes_behind_it() -> None:
    alone, last = order_of(B), 2**44 - 1
    located = alone.locate(last, 1)
    assert located.epoch.tolist() == [last // 40]
    assert alone.first_position(0, last) == last
    assert alone.first_position(0, last + 1) == -1
    with pytest.raises(ConfigError, match="position out of range"):
        alone.locate(last, 2)


def test_the_order_of_these_versions_never_changes() -> None:
    assert VERSIONS == {"mixture": 2, "permutation": 2, "deal": 1}
    located = Order((A, B, C), shares=(0.25, 0.7, 0.05), seed=42).locate(10**9, 12)
    assert located.source.tolist() == [1, 0, 1, 1, 2, 1, 0, 1, 1, 1, 0, 1]
    assert located.epoch[[0, 1, 4, 10]].tolist() == [17500000, 35714285, 50000000, 35714286]
    assert located.row.tolist() == [22, 4, 29, 13, 0, 4, 0, 18, 16, 26, 5, 5]


@given(position=st.integers(0, 700), data=st.data())
@settings(max_examples=15, deadline=None)
def test_no_row_comes_before_its_earliest_position(position: int, data: st.DataObject) -> None:
    order = Order((A, B, C), shares=data.draw(shares(3)), seed=3).change(200, data.draw(shares(3)))
    located = order.locate(0, 1500)
    wanted = order.counts(max(position, 200)) + np.array([0, 3, 11])
    earliest = order.earliest_positions(wanted)
    for source, number in enumerate(wanted.tolist()):
        places = np.flatnonzero(located.source == source)
        if number < len(places):
            assert earliest[source] <= places[number]
            # What is owed at the change falls due before it, and comes first behind it.
            assert places[number] <= max(earliest[source], 200) + 2 * 3 + 4
        else:
            assert earliest[source] > 1500 - 2 * 3 - 4


@pytest.mark.parametrize("tiny", [1e-19, 1e-25, 1e-300])
def test_rows_owed_to_a_tiny_share_are_found_again(tiny: float) -> None:
    sources = [SourceRows(name=str(i), num_rows=10**6) for i in range(8)]
    num_owed = 0
    for seed in range(20):
        first = Order(sources, shares=[1 / 8] * 8, seed=seed)
        order = first.change(36, [1 - 7 * tiny] + [tiny] * 7)
        source, number = order.numbers(0, 50)
        num_owed += int((source[36:] > 0).sum())  # what they were owed comes first
        found = [order.first_position(int(s), int(n)) for s, n in zip(source, number, strict=True)]
        assert found == list(range(50))
    assert num_owed > 5


@given(data=st.data(), limits=st.lists(st.integers(0, 60), min_size=3, max_size=3))
@settings(max_examples=25, deadline=None)
def test_the_first_row_beyond_a_limit_is_found(data: st.DataObject, limits: list[int]) -> None:
    order = Order((A, B, C), shares=data.draw(shares(3)), seed=3).change(40, data.draw(shares(3)))
    source, number = order.numbers(0, 400)
    beyond = np.flatnonzero(number >= np.array(limits)[source])
    found = order.first_beyond(np.array(limits))
    if len(beyond):
        assert found == (beyond[0], source[beyond[0]])
    else:
        assert found is None or found[0] >= 400


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    start=st.integers(0, 60),
    count=st.integers(0, 30),
)
@settings(max_examples=40, deadline=None)
def test_a_succession_is_one_source_after_the_other(
    sizes: list[int], start: int, count: int
) -> None:
    rows = [SourceRows(name=str(i), num_rows=n, shuffle=False) for i, n in enumerate(sizes)]
    order = Order(rows, shares=None, seed=1)
    one_pass = [(source, row) for source, n in enumerate(sizes) for row in range(n)]
    expected = [one_pass[p % len(one_pass)] for p in range(start, start + count)]
    located = order.locate(start, count)
    assert list(zip(located.source.tolist(), located.row.tolist(), strict=True)) == expected
    before = [one_pass[p % len(one_pass)][0] for p in range(start)]
    assert order.counts(start).tolist() == [before.count(s) for s in range(len(sizes))]
    for i, (source, row) in enumerate(expected):
        epoch = int(located.epoch[i])
        assert order.positions(source, row, epochs=range(epoch, epoch + 1)) == [(epoch, start + i)]
    with pytest.raises(ConfigError):
        order.change(0, [1.0] * len(sizes))
