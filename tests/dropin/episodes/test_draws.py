"""Draws with replacement: uniform, a pure function of where a run is, any stretch at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.dropin.episodes.draws import AT_ONCE, Draws, _upper_half
from tokenreel.errors import ConfigError


@given(st.integers(0, 2**40), st.integers(0, 50), st.integers(0, 50), st.integers(1, 2**63))
def test_any_stretch_is_part_of_the_whole(start, count, offset, num_rows):
    whole = Draws(num_rows, key=7).rows(start, count + offset)
    assert whole.dtype == np.int64
    assert (whole[offset:] == Draws(num_rows, key=7).rows(start + offset, count)).all()
    assert ((whole >= 0) & (whole.astype(np.uint64) < num_rows)).all()


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(1, 2**63))
def test_the_upper_half_of_a_product_is_exact(values, factor):
    found = _upper_half(np.array(values, np.uint64), factor)
    assert found.tolist() == [(value * factor) >> 64 for value in values]


@pytest.mark.parametrize("num_rows", [1, 2, 7, 1000])
def test_draws_are_uniform(num_rows):
    drawn = Draws(num_rows, key=3).rows(0, 200_000)
    expected = len(drawn) / num_rows
    counts = np.bincount(drawn, minlength=num_rows)
    assert abs(counts - expected).max() <= 5.5 * np.sqrt(expected)


def test_keys_have_nothing_to_do_with_each_other():
    one, other = (Draws(100, key=key).rows(0, 10_000) for key in (1, 2))
    assert abs((one == other).mean() - 0.01) < 0.006


def test_nothing_to_draw_from_is_an_error():
    with pytest.raises(ConfigError, match="there is nothing to draw from"):
        Draws(0, key=1)


@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 5000)), max_size=10))
def test_draws_at_hand_are_those_that_are_looked_up(questions):
    kept = Draws(1000, key=5)
    for start, count in questions:
        assert (kept.rows(start, count) == Draws(1000, key=5).rows(start, count)).all()


def test_consecutive_questions_cost_one_look_up():
    draws = Draws(1000, key=5)
    blocks = {id(draws.rows(start, 32).base) for start in range(0, AT_ONCE, 32)}
    assert len(blocks) == 1
