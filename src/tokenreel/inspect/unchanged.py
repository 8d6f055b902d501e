"""How far two runs are the same for a reason, before a single row is looked at.

A run is a function of its order and the rows of its sources, so a stretch of it can be known to be
the same without making it:

    steps     0 ─────────────────────────────► bound ──────────► compared row by row (first_step.py)
              the same rows, of the same content,
              in the same seats

Three things may end that stretch, and each is found in closed form: the first position at which
the orders may differ; the first row of a source whose rows may differ; a run that ends. What may
differ need not, so the bound is where looking begins and never the answer.

Mixtures are the delicate part. A row's time depends on the schedule up to that time *and on the
largest share that its source ever has* (the margin of its jitter, order/mixture.py). A phase that
begins at step 60,000 and gives a source more than it had before therefore moves rows from the
first step on, and nothing is claimed about such a run. If no share rises above its largest, as
where a phase only brings in a source that had none, all rows that are due before the phase begins
keep their times, and their number, counted exactly, is the bound; it may lie a few rows before or
behind the first position of the phase.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.feed.feed import Feed
from tokenreel.order.mixture import Mixture
from tokenreel.order.order import Era, Order
from tokenreel.order.schedule import MAX_TIME, Schedule
from tokenreel.order.succession import Succession

ENDLESS = int(MAX_TIME)  # positions: no run goes beyond


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairing:
    """Sources of two feeds by their names.

    a, b: int64 [C], the numbers of each source that both have, in the order of the first feed.
    number_in_a: int64 [sources of b + 1], the number that the first feed gives to each source of
    the second, else a number that no source has; the last is of rows that only fill up a step, -1.
    has_same_rows: bool [sources of a + 1], whether row r of a source is the same in both feeds.
    """

    a: np.ndarray
    b: np.ndarray
    number_in_a: np.ndarray
    has_same_rows: np.ndarray


def pair_sources(a: Feed, b: Feed) -> Pairing:
    """Find which sources have the same name, and which of them the same rows."""
    names, others = ([source.name for source in feed.recipe.sources] for feed in (a, b))
    both = [(i, others.index(name)) for i, name in enumerate(names) if name in others]
    number_in_a = np.append(np.arange(len(others)) + len(names) + 1, -1)
    has_same_rows = np.zeros(len(names) + 1, bool)
    has_same_rows[-1] = True
    for i, j in both:
        number_in_a[j] = i
        has_same_rows[i] = _has_same_rows(a, i, b, j)
    common = np.array(both, np.int64).reshape(-1, 2)
    return Pairing(
        a=common[:, 0], b=common[:, 1], number_in_a=number_in_a, has_same_rows=has_same_rows
    )


def _has_same_rows(a: Feed, i: int, b: Feed, j: int) -> bool:
    """Tell whether row r of a source is known to be the same in both feeds, for every r."""
    one, other = a.recipe.sources[i], b.recipe.sources[j]
    store, its = a.stores[i], b.stores[j]
    if store.fingerprint != its.fingerprint or a.plans[i].settings != b.plans[j].settings:
        return False
    # The fingerprint of a foreign layout is of samples: only the same files are surely the same.
    is_native = store.manifest is not None and its.manifest is not None
    declared = [(item.layout, item.dtype, item.eos_id) for item in (one, other)]
    is_vouched_for = is_native or (
        store.path.resolve() == its.path.resolve() and declared[0] == declared[1]
    )
    return (
        is_vouched_for and one.split == other.split and a.plans[i].num_rows == b.plans[j].num_rows
    )


def same_positions(a: Feed, b: Feed, pairing: Pairing) -> int:
    """Return a number of positions that show the same rows for a reason; `ENDLESS`: all do.

    The batches must have the same shape.
    """
    if a.deal != b.deal or a.recipe.pad_id != b.recipe.pad_id:
        return 0
    bound = _same_order(a.order, b.order, pairing) * a.recipe.group_size
    for feed, changed in (
        (a, _changed(a, pairing.a, pairing)),
        (b, _changed(b, pairing.b, pairing)),
    ):
        for source in changed:
            first = feed.order.first_position(source, 0)
            bound = min(bound, first if first >= 0 else ENDLESS)
    return min(bound, ENDLESS)


def _changed(feed: Feed, common: np.ndarray, pairing: Pairing) -> list[int]:
    """Return the sources whose rows may differ from those of the other feed."""
    same = set(common[pairing.has_same_rows[pairing.a]].tolist())
    return [number for number in range(len(feed.plans)) if number not in same]


def _same_order(a: Order, b: Order, pairing: Pairing) -> int:
    """Return how many positions are known to be of the same source, epoch and row.

    Of an order of groups, how many groups are.
    """
    if np.any(np.diff(pairing.b) < 0) or not _has_same_epochs(a, b, pairing):
        return 0
    for number in range(max(len(a.eras), len(b.eras))):
        eras = [order.eras[number] for order in (a, b) if number < len(order.eras)]
        if len({era.start for era in eras}) > 1 or len(eras) == 1:
            return min(era.start for era in eras)  # up to there the eras before hold, in both
        same = _same_in_era(eras[0], eras[1], pairing)
        if same < ENDLESS:
            return eras[0].start + same
    return ENDLESS


def _has_same_epochs(a: Order, b: Order, pairing: Pairing) -> bool:
    """Tell whether numbers of rows become the same epochs and rows in all common sources."""
    return all(
        a.num_rows[i] == b.num_rows[j]
        and a.sources[i].shuffle == b.sources[j].shuffle
        and (a.epoch_keys[i] == b.epoch_keys[j] or not a.sources[i].shuffle)
        for i, j in zip(pairing.a.tolist(), pairing.b.tolist(), strict=True)
        if pairing.has_same_rows[i]
    )


def _same_in_era(one: Era, other: Era, pairing: Pairing) -> int:
    """Return how many positions of an era are known to be the same; `ENDLESS`: all."""
    a, b = one.mixture, other.mixture
    if isinstance(a, Succession) or isinstance(b, Succession):
        is_same = type(a) is type(b) and np.array_equal(_sizes(a), _sizes(b))
        return ENDLESS if is_same and len(pairing.a) == len(_sizes(a)) else 0
    if a.num_sources == b.num_sources == len(pairing.a) == 1:
        # A single source gives its rows one after the other, whatever its share and its key.
        return ENDLESS if a.given[0] == b.given[0] else 0
    if 1 in (a.num_sources, b.num_sources):
        return 0
    time = _same_until(a, b, pairing)
    if time >= MAX_TIME:
        return ENDLESS
    # Rows due before that time have the same times in both, and all others come behind them.
    counts = [int((mixture.count_before(time) - mixture.given).sum()) for mixture in (a, b)]
    return counts[0] if counts[0] == counts[1] else 0


def _sizes(mixture: Mixture | Succession) -> np.ndarray:
    return mixture.num_rows if isinstance(mixture, Succession) else np.empty(0)


def _same_until(a: Mixture, b: Mixture, pairing: Pairing) -> float:
    """Return the time before which the same rows are due at the same times; inf: all are.

    The latest start of a stretch that will do: before it schedules are the same, and so is the
    jitter of every source that has a share by then.
    """
    num_same = _num_same_stretches(a.schedule, b.schedule, pairing)
    for k in range(num_same, 0, -1):
        if _has_same_jitter(a, b, k, pairing):
            plans = (a.schedule, b.schedule)
            return float(min((p.starts[k] for p in plans if k < len(p.starts)), default=np.inf))
    return 0.0


def _num_same_stretches(a: Schedule, b: Schedule, pairing: Pairing) -> int:
    """Return how many stretches are the same for common sources.

    Shares sum to 1 in both runs, so where those of common sources are equal others have none.
    """
    i, j = pairing.a, pairing.b
    columns = ((a.shares, b.shares), (a.slopes, b.slopes), (a.totals, b.totals))
    same = 0
    for k in range(min(len(a.starts), len(b.starts))):
        is_same = all(np.array_equal(one[k, i], other[k, j]) for one, other in columns)
        if a.starts[k] != b.starts[k] or not is_same:
            break
        same += 1
    return same


def _has_same_jitter(a: Mixture, b: Mixture, num_stretches: int, pairing: Pairing) -> bool:
    """Tell whether rows due in the first stretches have the same place in their strata.

    A source without a share there gives no row, if none is owed to it.
    """
    i, j = pairing.a, pairing.b
    first = slice(0, num_stretches)
    gives = (a.schedule.shares[first] != 0) | (a.schedule.slopes[first] != 0)
    is_giving = gives.any(axis=0)[i]
    columns = (
        (a.keys, b.keys),
        (a.given, b.given),
        (a.owed, b.owed),
        (a.schedule.largest_shares, b.schedule.largest_shares),
    )
    idle = (
        (a, np.delete(np.arange(a.num_sources), i[is_giving])),
        (b, np.delete(np.arange(b.num_sources), j[is_giving])),
    )
    return all(
        np.array_equal(one[i[is_giving]], other[j[is_giving]]) for one, other in columns
    ) and not any(mixture.owed[sources].any() for mixture, sources in idle)
