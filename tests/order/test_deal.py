"""Rows of a step are dealt to its seats: a bijection in every step, and the way back."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.order import deal
from tokenreel.order.deal import Deal, deal_key
from tokenreel.order.permutation import scramble


@given(
    batch=st.integers(1, 300),
    step=st.integers(0, 50) | st.integers(0, 2**40),
    key=st.none() | st.integers(0, 2**64 - 1),
)
@settings(max_examples=80, deadline=None)
def test_every_row_of_a_step_has_one_seat(batch: int, step: int, key: int | None) -> None:
    dealt = Deal(batch_size=batch, key=key)
    positions = dealt.positions(step, np.arange(batch))
    assert np.array_equal(np.sort(positions), step * batch + np.arange(batch))
    for seat in {0, batch // 2, batch - 1}:
        assert dealt.seat(int(positions[seat])) == (step, seat)
    if key is None:
        assert np.array_equal(positions, step * batch + np.arange(batch))


@given(batch=st.integers(1, 40), num_rows=st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_the_last_step_deals_what_is_left(batch: int, num_rows: int) -> None:
    dealt = Deal(batch_size=batch, num_rows=num_rows, key=deal_key(1))
    steps = -(-num_rows // batch)
    seen = [dealt.positions(s, np.arange(dealt.num_rows_in(s))) for s in range(steps)]
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(num_rows))
    assert dealt.num_rows_in(steps) == 0
    assert all(len(rows) == batch for rows in seen[:-1])


def test_seats_are_drawn_by_the_exact_upper_half_of_a_product() -> None:
    # So many rows that the lower half of some products carries into the upper.
    size, step, key = 1 << 18, 3, deal_key(1)
    hashed = scramble(np.arange(size), int(scramble(np.array(step), key))).tolist()
    dealt = list(range(size))
    for seat in range(size - 1, 0, -1):
        other = (hashed[seat] * (seat + 1)) >> 64
        dealt[seat], dealt[other] = dealt[other], dealt[seat]
    positions = Deal(batch_size=size, key=key).positions(step, np.arange(size)) - step * size
    assert np.array_equal(positions, dealt)


def test_steps_and_seeds_are_dealt_apart() -> None:
    hands = [
        Deal(batch_size=500, key=deal_key(seed)).positions(step, np.arange(500)) - step * 500
        for seed in (1, 2)
        for step in (0, 1, 2)
    ]
    for i, one in enumerate(hands):
        for other in hands[i + 1 :]:
            assert np.count_nonzero(one == other) < 8


def test_the_deal_of_version_1_never_changes() -> None:
    assert deal.VERSION == 1
    dealt = Deal(batch_size=10, key=deal_key(7))
    assert dealt.positions(0, np.arange(10)).tolist() == [4, 9, 8, 2, 5, 6, 0, 7, 3, 1]
    far = dealt.positions(10**9, np.arange(10)) - 10**10
    assert far.tolist() == [5, 7, 3, 1, 6, 4, 9, 0, 2, 8]
