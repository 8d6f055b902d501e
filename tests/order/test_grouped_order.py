"""Rows in groups: whatever an order answers of rows agrees with what it locates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.order.deal import Deal
from tokenreel.order.grouped_order import GroupedOrder
from tokenreel.order.order import Order, SourceRows


@st.composite
def orders(draw: st.DrawFn) -> tuple[GroupedOrder, Order, int]:
    """Return an order of groups and of their rows, and the size of a group."""
    num_sources, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    sources = [
        SourceRows(name=f"s{n}", num_rows=draw(st.integers(1, 7)), shuffle=draw(st.booleans()))
        for n in range(num_sources)
    ]
    weights = draw(st.lists(st.integers(1, 9), min_size=num_sources, max_size=num_sources))
    shares = [weight / sum(weights) for weight in weights]
    given_shares = None if draw(st.booleans()) else shares
    groups = Order(sources, shares=given_shares, seed=draw(st.integers(0, 99)))
    if given_shares is not None and draw(st.booleans()):
        groups = groups.change(draw(st.integers(0, 9)), shares[::-1])
    return GroupedOrder(groups, size=size), groups, size


@given(orders(), st.integers(0, 40), st.integers(1, 30))
@settings(deadline=None)
def test_rows_of_a_group_stand_side_by_side_in_the_order_of_groups(
    made: tuple[GroupedOrder, Order, int], start: int, count: int
) -> None:
    order, groups, size = made
    located, whole = order.locate(start, count), groups.locate(0, (start + count) // size + 1)
    for at, (source, epoch, row) in enumerate(zip(*located.columns, strict=True), start=start):
        group, within = divmod(at, size)
        assert (source, epoch) == (whole.source[group], whole.epoch[group])
        assert row == whole.row[group] * size + within


@given(orders(), st.integers(0, 60))
@settings(deadline=None)
def test_counts_and_positions_agree_with_what_is_located(
    made: tuple[GroupedOrder, Order, int], stop: int
) -> None:
    order, _, size = made
    located = order.locate(0, stop)
    counts = np.bincount(located.source, minlength=len(order.sources))
    assert order.counts(stop).tolist() == counts.tolist()
    seen = dict.fromkeys(range(len(order.sources)), 0)
    for at, (source, epoch, row) in enumerate(zip(*located.columns, strict=True)):
        assert (epoch, at) in order.positions(source, row, epochs=range(epoch, epoch + 1))
        assert order.first_position(source, seen[source]) == at
        seen[source] += 1
    numbers = np.array([seen[source] for source in seen]) // size * size
    # What was given before the last change is no longer asked for.
    earliest_positions = order.earliest_positions(numbers) if len(order.eras) == 1 else ()
    for source, earliest in enumerate(earliest_positions):
        assert earliest <= order.first_position(source, int(numbers[source]))


def test_a_change_of_shares_holds_from_its_position_on() -> None:
    sources = [SourceRows(name=name, num_rows=5) for name in "ab"]
    order = GroupedOrder(Order(sources, shares=[0.5, 0.5], seed=3), size=4)
    changed = order.change(16, [1.0, 0.0])
    assert changed.locate(0, 16).row.tolist() == order.locate(0, 16).row.tolist()
    assert set(changed.locate(16, 40).source.tolist()) == {0}
    first, later = changed.shares_at(15), changed.shares_at(16)
    assert first is not None and first.tolist() == [0.5, 0.5]
    assert later is not None and later.tolist() == [1.0, 0.0]
    assert changed.first_beyond(np.array([20, 20])) is not None


@pytest.mark.parametrize("step", range(5))
def test_groups_are_dealt_whole(step: int) -> None:
    deal = Deal(batch_size=12, num_rows=54, key=5, group_size=3)
    count = deal.num_rows_in(step)
    positions = deal.positions(step, np.arange(count))
    groups = positions.reshape(-1, 3)
    assert (groups[:, 0] % 3 == 0).all() and (np.diff(groups, axis=1) == 1).all()
    assert sorted(positions.tolist()) == list(range(12 * step, 12 * step + count))
    assert [deal.seat(int(position)) for position in positions] == [
        (step, seat) for seat in range(count)
    ]
