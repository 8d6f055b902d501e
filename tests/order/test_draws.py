"""Draws with replacement: uniform, a pure function of where a run is, any stretch at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import ConfigError
from tokenreel.order.ahead import AT_ONCE, Ahead
from tokenreel.order.draws import _upper_half, draw


@given(st.integers(0, 2**40), st.integers(0, 50), st.integers(0, 50), st.integers(1, 2**63))
def test_any_stretch_is_part_of_the_whole(start, count, offset, num_rows):
    whole = draw(start, count + offset, num_rows=num_rows, key=7)
    assert whole.dtype == np.int64
    assert (whole[offset:] == draw(start + offset, count, num_rows=num_rows, key=7)).all()
    assert ((whole >= 0) & (whole.astype(np.uint64) < num_rows)).all()


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(1, 2**63))
def test_the_upper_half_of_a_product_is_exact(values, factor):
    found = _upper_half(np.array(values, np.uint64), factor)
    assert found.tolist() == [(value * factor) >> 64 for value in values]


@pytest.mark.parametrize("num_rows", [1, 2, 7, 1000])
def test_draws_are_uniform(num_rows):
    drawn = draw(0, 200_000, num_rows=num_rows, key=3)
    expected = len(drawn) / num_rows
    counts = np.bincount(drawn, minlength=num_rows)
    assert abs(counts - expected).max() <= 5.5 * np.sqrt(expected)


def test_keys_have_nothing_to_do_with_each_other():
    one, other = (draw(0, 10_000, num_rows=100, key=key) for key in (1, 2))
    assert abs((one == other).mean() - 0.01) < 0.006


def test_nothing_to_draw_from_is_an_error():
    with pytest.raises(ConfigError, match="there is nothing to draw from"):
        draw(0, 1, num_rows=0, key=1)


@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 5000)), max_size=10))
def test_rows_looked_up_ahead_are_the_rows(questions):
    asked = []

    def look_up(start, count):
        asked.append(count)
        return np.arange(start, start + count) * 3

    ahead = Ahead(look_up)
    for start, count in questions:
        assert (ahead.rows(start, count) == np.arange(start, start + count) * 3).all()
    assert all(count >= AT_ONCE for count in asked)


def test_consecutive_questions_cost_one_look_up():
    asked = []

    def look_up(start, count):
        asked.append((start, count))
        return np.arange(start, start + count)

    ahead = Ahead(look_up, at_once=64)
    for start in range(0, 64, 8):
        ahead.rows(start, 8)
    assert asked == [(0, 64)]
