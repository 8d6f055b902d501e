"""What batches are made of: the claims of the mixture's docstring, in numbers.

Version 1 fails each of these: many small sources swung together, a seat belonged to a source,
and changes of weights starved the small.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.order.making import shares

from tokenreel import native
from tokenreel.order.deal import Deal, deal_key
from tokenreel.order.order import Order, SourceRows
from tokenreel.order.schedule import Change, make_schedule

KINDS = ("equal", "one large", "dirichlet", "sparse", "extreme")


def order_of(
    shares: Sequence[float] | np.ndarray,
    *,
    seed: int = 3,
    num_rows: int = 10**9,
    changes: Sequence[Change] = (),
) -> Order:
    rows = [SourceRows(name=f"s{i}", num_rows=num_rows) for i in range(len(shares))]
    return Order(rows, shares=tuple(shares), changes=changes, seed=seed)


def some_shares(kind: str, num_sources: int, chance: np.random.Generator) -> np.ndarray:
    weights = {
        "equal": np.ones(num_sources),
        "one large": np.append(num_sources - 1.0, np.ones(num_sources - 1)),
        "dirichlet": chance.dirichlet(np.ones(num_sources)),
        "sparse": chance.dirichlet(np.full(num_sources, 0.1)) + 1e-12,
        "extreme": 10.0 ** chance.uniform(-6, 0, num_sources),
    }[kind]
    return weights / weights.sum()


def counts_in(order: Order, num_batches: int, batch: int) -> np.ndarray:
    """Return how many rows of each source are in each batch, [N, S]."""
    num_sources = len(order.sources)
    source, _ = order.numbers(0, num_batches * batch)
    cells = source + num_sources * np.repeat(np.arange(num_batches), batch)
    return np.bincount(cells, minlength=num_batches * num_sources).reshape(num_batches, -1)


def longest_run(flags: np.ndarray) -> int:
    borders = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return int((borders[1::2] - borders[::2]).max())


@pytest.mark.parametrize(
    ("num_small", "batch", "spread", "independent"),
    [
        (10, 32, 0.05, 0.088),
        (50, 32, 0.07, 0.088),
        (500, 256, 0.022, 0.031),
        (1000, 256, 0.022, 0.031),
    ],
)
def test_many_small_sources_do_not_swing_together(
    num_small: int, batch: int, spread: float, independent: float
) -> None:
    order = order_of([0.5] + [0.5 / num_small] * num_small)
    source, _ = order.numbers(0, batch * 4000)
    large = (source.reshape(-1, batch) == 0).mean(axis=1)
    assert large.std() < spread < independent
    assert np.abs(large - 0.5).max() < 6 * independent
    assert longest_run(source == 0) <= 20  # of a million draws, by chance: about 20; it was 504


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_sources", [2, 3, 10, 50, 200, 1000])
def test_counts_vary_no_more_than_those_of_independent_draws(num_sources: int, kind: str) -> None:
    chance = np.random.default_rng(num_sources)
    num_batches = 1500
    for batch in (1, 8, 32, 256):
        share = some_shares(kind, num_sources, chance)
        counts = counts_in(order_of(share, seed=batch), num_batches, batch)
        varied = ((counts - share * batch) ** 2).mean(axis=0)
        drawn = batch * share * (1 - share)
        assert varied.sum() <= 1.01 * drawn.sum()
        # Sources that are seldom shown tell little, so those are judged that came 30 times.
        often = share * batch * num_batches > 30
        error = np.sqrt((2 + 1 / drawn[often]) / num_batches)
        assert (varied[often] / drawn[often] <= 1 + 4 * error).all()


@pytest.mark.parametrize("kind", ["dirichlet", "sparse"])
@pytest.mark.parametrize("num_sources", [2, 10, 200])
def test_nor_do_they_in_ramps_and_changes_at_every_step(num_sources: int, kind: str) -> None:
    chance = np.random.default_rng(num_sources)
    for batch, num_batches in ((8, 1500), (32, 1000), (256, 300)):
        wanted = np.array([some_shares(kind, num_sources, chance) for _ in range(num_batches)])
        changes = [(k * batch, wanted[k].tolist()) for k in range(1, num_batches)]
        changed = order_of(wanted[0]).changed(changes)
        check_varies_less(counts_in(changed, num_batches, batch), wanted, batch)
        ramp = Change(start=10 * batch, shares=tuple(wanted[1]), ramp=(num_batches - 20) * batch)
        ramped = order_of(wanted[0], changes=[ramp])
        schedule = make_schedule(wanted[0], [ramp])
        borders = np.arange(num_batches + 1.0)[:, None] * batch
        due = np.diff(schedule.integral(np.arange(num_sources), borders), axis=0)
        check_varies_less(counts_in(ramped, num_batches, batch), due / batch, batch)


def check_varies_less(counts: np.ndarray, shares: np.ndarray, batch: int) -> None:
    varied, drawn = (counts - shares * batch) ** 2, batch * shares * (1 - shares)
    assert varied.sum() <= drawn.sum()
    # The bound that the docstring of the mixture states.
    beside = np.abs(np.cumsum(counts - shares * batch, axis=0))
    largest = np.maximum.accumulate(shares, axis=0)
    assert (beside < 1 + 2 * shares.shape[1] * largest).all()


@given(
    whole=st.lists(st.integers(0, 9), min_size=2, max_size=40).filter(sum),
    times=st.integers(1, 3),
    seed=st.integers(0, 99),
    start=st.integers(0, 10**6) | st.integers(0, 10**10),
)
@settings(max_examples=60, deadline=None)
def test_whole_counts_are_exact_in_every_batch(
    whole: list[int], times: int, seed: int, start: int
) -> None:
    batch = times * sum(whole)
    order = order_of([n / sum(whole) for n in whole], seed=seed)
    source, _ = order.numbers(start * batch, 20 * batch)
    for part in source.reshape(20, batch):
        assert np.bincount(part, minlength=len(whole)).tolist() == [times * n for n in whole]


@pytest.mark.parametrize(
    ("weights", "batch"),
    [((0.9, 0.1), 10), ((0.75, 0.25), 8), ((0.7, 0.3), 10), ((0.5, 0.3, 0.2), 10)],
)
def test_every_source_is_as_likely_in_every_seat(weights: tuple[float, ...], batch: int) -> None:
    order, deal, steps = order_of(weights), Deal(batch_size=batch, key=deal_key(3)), 10**4
    source = order.numbers(0, steps * batch)[0]
    seated = np.array(
        [source[deal.positions(step, np.arange(batch))] for step in range(steps)], np.int64
    )
    for number, weight in enumerate(weights):
        found = (seated == number).sum(axis=0)
        expected = weight * steps
        # Counts per step are fixed, so seats of a step are drawn without replacement.
        variance = expected * (1 - weight) * batch / (batch - 1)
        surprise = ((found - expected) ** 2 / variance).sum()
        assert abs(surprise - (batch - 1)) < 4 * np.sqrt(2 * (batch - 1))
        # Nor do neighbouring seats, or successive steps, follow each other.
        mine = (seated == number) - weight
        scale = np.sqrt(steps * batch) * weight * (1 - weight)
        together = (mine[:, 1:] * mine[:, :-1]).sum() / scale
        without = -np.sqrt(steps / batch)  # what is not replaced repels its neighbours a little
        assert abs(together - without) < 4
        assert abs((mine[1:] * mine[:-1]).sum() / scale) < 4


def test_changing_weights_in_every_step_starves_nobody() -> None:
    for weights in ([0.97, 0.03], [0.96, 0.04], [0.9, 0.1], [0.8, 0.15, 0.05]):
        steps, batch = 2000, 8
        other = [weights[0] - 1e-6, weights[1] + 1e-6, *weights[2:]]  # another, or it is none
        changes = [(step * batch, other if step % 2 else weights) for step in range(1, steps)]
        counts = order_of(weights).changed(changes).counts(steps * batch)
        assert np.abs(counts - np.array(weights) * steps * batch).max() <= 1.5


@given(data=st.data(), num_sources=st.integers(2, 6), batch=st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_changes_one_by_one_are_those_at_once(
    data: st.DataObject, num_sources: int, batch: int
) -> None:
    first = data.draw(shares(num_sources))
    steps = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))
    positions = (np.cumsum(steps) * batch).tolist()
    changes = [(position, data.draw(shares(num_sources))) for position in positions]
    by_one = order_of(first, num_rows=20)
    for position, changed in changes:
        by_one = by_one.change(position, changed)
    at_once = order_of(first, num_rows=20).changed(changes)
    one, other = by_one.locate(0, 300), at_once.locate(0, 300)
    for column, same in zip(one.columns, other.columns, strict=True):
        assert np.array_equal(column, same)
    # What a source of share 0 is owed it does not get before it has a share again.
    last, source = changes[-1][0], other.source[changes[-1][0] :]
    none = np.flatnonzero(np.array(changes[-1][1]) == 0)
    assert last >= 300 or not np.isin(source, none).any()


def test_shares_that_hold_already_are_known() -> None:
    ramped = order_of([0.5, 0.5], changes=[Change(start=100, shares=(0.2, 0.8), ramp=50)])
    assert ramped.shares_from(149) is None
    assert np.array_equal(ramped.shares_from(150), [0.2, 0.8])  # type: ignore[arg-type]
    changed = ramped.change(60, (0.5, 0.5))
    assert np.array_equal(changed.shares_from(60), [0.5, 0.5])  # type: ignore[arg-type]
    assert changed.shares_from(59) is None


@pytest.mark.skipif(native.extension() is None, reason="numpy takes longer")
def test_ten_thousand_sources_cost_what_they_must() -> None:
    """Not seconds, but how they grow: ten times the sources, not a hundred times the time."""
    seconds = {}
    for num_sources in (1000, 10_000):
        share = some_shares("dirichlet", num_sources, np.random.default_rng(0))
        order = order_of(share, num_rows=1000)
        order.locate(0, 256)
        best = float("inf")
        for step in range(5):
            begin = time.perf_counter()
            order.numbers(10**9 + step * 256, 256)
            order.counts(10**9 + step * 256)
            best = min(best, time.perf_counter() - begin)
        seconds[num_sources] = best
    assert seconds[10_000] < 40 * seconds[1000]
