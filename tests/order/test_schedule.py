"""Shares over time: their integral is exact, and what makes no sense is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.order.making import schedules

from tokenreel.errors import ConfigError
from tokenreel.order.schedule import Change, Schedule, make_schedule, normalised

NAMES = ["web", "chat", "code"]


@given(schedule=schedules(), stop=st.integers(1, 3000))
@settings(max_examples=15, deadline=None)
def test_the_integral_is_what_adding_up_the_shares_gives(schedule: Schedule, stop: int) -> None:
    # Shares are straight lines between breakpoints, where the midpoint rule is exact.
    added = sum(schedule.shares_at(time + 0.5) for time in range(stop))
    end = np.array([float(stop)])
    closed = [float(schedule.integral(source, end)[0]) for source in range(schedule.num_sources)]
    assert np.allclose(closed, added, rtol=1e-9, atol=1e-6)


@given(schedule=schedules(), time=st.floats(0, 1e7))
@settings(max_examples=15, deadline=None)
def test_shares_sum_to_one_and_integrals_to_the_time(schedule: Schedule, time: float) -> None:
    assert math.isclose(float(schedule.shares_at(time).sum()), 1.0, rel_tol=1e-9)
    at = np.array([time])
    total = sum(float(schedule.integral(s, at)[0]) for s in range(schedule.num_sources))
    assert math.isclose(total, time, rel_tol=1e-9, abs_tol=1e-9)


@given(schedule=schedules(), rows=st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
@settings(max_examples=15, deadline=None)
def test_times_undo_the_integral(schedule: Schedule, rows: list[int]) -> None:
    due = np.array(sorted(rows)) + 0.5
    for source in range(schedule.num_sources):
        times = schedule.times(source, due)
        comes = np.isfinite(times)
        assert not np.isnan(times).any()
        assert (np.diff(times[comes]) >= 0).all()
        back = schedule.integral(source, times[comes])
        assert np.allclose(back, due[comes], rtol=1e-9, atol=1e-6)
        if not comes.all():
            assert schedule.shares[-1, source] == 0
            assert due[~comes].min() > schedule.totals[-1, source]


def test_a_row_due_where_a_share_leaves_zero_has_a_time() -> None:
    changes = [Change(start=11, shares=(0.0, 1.0)), Change(start=20, shares=(1.0, 0.0), ramp=10)]
    schedule = make_schedule((0.5, 0.5), changes)
    assert schedule.times(0, np.array([5.5])).tolist() == [20.0]


def test_a_phase_inside_the_ramp_before_is_refused() -> None:
    changes = [Change(start=10, shares=(1.0,), ramp=20), Change(start=25, shares=(1.0,))]
    with pytest.raises(ConfigError) as caught:
        make_schedule((1.0,), changes)
    assert str(caught.value) == (
        "a phase begins before the ramp of the one before has ended "
        "(expected from position 30 on, got position 25)"
    )


def test_phases_may_be_given_in_any_order() -> None:
    changes = [Change(start=10, shares=(0.0, 1.0)), Change(start=30, shares=(1.0, 0.0))]
    one, other = (make_schedule((0.5, 0.5), order) for order in (changes, changes[::-1]))
    assert np.array_equal(one.shares, other.shares)
    assert np.array_equal(one.totals, other.totals)


def test_a_misspelt_source_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        normalised({"web": 1, "chta": 2}, NAMES)
    assert "weights for sources that do not exist: chta" in str(caught.value)
    assert "expected web, chat, code" in str(caught.value)


@pytest.mark.parametrize(
    "weights",
    [{"web": -1.0, "chat": 2.0}, {"web": math.nan}, {"web": math.inf}, {"web": 0.0}, {}],
)
def test_weights_that_are_none_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="weights must be finite, not negative, and not all 0"):
        normalised(weights, NAMES)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    with pytest.raises(ConfigError, match=r"bad temperature \(expected > 0"):
        normalised({"web": 1}, NAMES, temperature=temperature)


@given(
    weights=st.lists(st.floats(0, 1e6), min_size=3, max_size=3).filter(any),
    temperature=st.floats(0.25, 16),
)
def test_temperature_keeps_zero_at_zero_and_the_order_of_the_rest(
    weights: list[float], temperature: float
) -> None:
    given_weights = dict(zip(NAMES, weights, strict=True))
    shares = normalised(given_weights, NAMES, temperature=temperature)
    assert math.isclose(sum(shares), 1.0, rel_tol=1e-9)
    for one, share in zip(weights, shares, strict=True):
        assert share == 0 if one == 0 else share >= 0
        for two, other in zip(weights, shares, strict=True):
            assert one <= two or share >= other


def test_temperature_one_keeps_the_weights_and_a_high_one_evens_them_out() -> None:
    weights = {"web": 8.0, "chat": 2.0}
    assert normalised(weights, NAMES) == (0.8, 0.2, 0.0)
    assert normalised(weights, NAMES, temperature=2.0) == pytest.approx((2 / 3, 1 / 3, 0.0))
    web, chat, code = normalised(weights, NAMES, temperature=1e6)
    assert (web, chat, code) == pytest.approx((0.5, 0.5, 0.0), abs=1e-5)
