"""The first step whose batches differ between two feeds: exact, or "the same in those searched".

What is the same for a reason is skipped (unchanged.py). From there on steps are compared, all of
them, in order: first which row sits in which seat, in closed form and many steps at once; tokens
are gathered only of seats that show another row, or a row of a source that may have changed. Two
rows of different numbers can hold the same tokens, so only their tokens decide.

Costs some 200 ns a row where rows are the same by number, and the making of both batches where
their tokens decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.inspect.step_comparison import (
    ends_before,
    shapes_differ,
    unequal_rows,
    wanted_extra,
)
from tokenreel.inspect.unchanged import ENDLESS, Pairing, pair_sources, same_positions
from tokenreel.order.order import Located
from tokenreel.progress import SILENT, Progress

DEFAULT_STEPS = 10_000
POSITIONS_AT_ONCE = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSearch:
    """What is known of the steps of two runs.

    first_step: the first whose batches differ; None: none was found. proven: so many steps, from
    the first on, are the same for a reason. stop: all steps below are known, proven or compared;
    None: all there are. is_complete: there is no step behind them. why: what makes the first
    differ, where that is not in its rows.
    """

    first_step: int | None
    proven: int | None
    stop: int | None
    is_complete: bool
    why: str | None = None


def find_first_step(
    a: Feed, b: Feed, *, max_steps: int = DEFAULT_STEPS, progress: Progress = SILENT
) -> StepSearch:
    """Return the first step whose batches differ, comparing at most so many steps."""
    if max_steps < 0:
        raise ConfigError("bad number of steps", expected=">= 0", actual=max_steps)
    why = shapes_differ(a, b)
    if why is not None:
        return StepSearch(first_step=0, proven=0, stop=0, is_complete=True, why=why)
    size, end = a.recipe.global_batch_size, _common_end(a, b)
    pairing = pair_sources(a, b)
    same = same_positions(a, b, pairing)
    if same >= ENDLESS and end is None:
        return StepSearch(first_step=None, proven=None, stop=None, is_complete=True)
    last = ENDLESS // size if end is None else end
    proven = min(same // size, last)
    stop = min(proven + max_steps, last)
    found = _compared(a, b, pairing, range(proven, stop), progress)
    if found is not None:
        return StepSearch(first_step=found, proven=proven, stop=found, is_complete=True)
    if end is not None and stop == end:
        return _at_the_end(a, b, proven=proven, end=end)
    return StepSearch(first_step=None, proven=proven, stop=stop, is_complete=False)


def _common_end(a: Feed, b: Feed) -> int | None:
    """Return the step behind the last that both runs have; None: neither run ends."""
    return min((end for end in (a.num_steps, b.num_steps) if end is not None), default=None)


def _at_the_end(a: Feed, b: Feed, *, proven: int, end: int) -> StepSearch:
    """Return the search that found all common steps the same: a run may go on where rows are.

    A run that ends because its recipe says `steps` says nothing of its data.
    """
    goes_on = any(feed.num_steps is None or feed.num_steps > end for feed in (a, b))
    why = ends_before(a, b, end) if goes_on else None
    return StepSearch(
        first_step=None if why is None else end,
        proven=proven,
        stop=end,
        is_complete=True,
        why=why,
    )


def _compared(a: Feed, b: Feed, pairing: Pairing, steps: range, progress: Progress) -> int | None:
    """Return the first of these steps whose batches differ; None: they are all the same."""
    progress.start("comparing steps", total=len(steps), unit="steps")
    extra, done = wanted_extra(a, b), steps.start
    for step, seats in _suspects(a, b, pairing, steps):
        progress.advance(step - done)
        done = step
        if seats is None:
            return step
        one, other = a.rows(step, seats, extra=extra), b.rows(step, seats, extra=extra)
        if unequal_rows(one, other, pairing).any():
            return step
    progress.advance(steps.stop - done)
    return None


def _suspects(
    a: Feed, b: Feed, pairing: Pairing, steps: range
) -> Iterator[tuple[int, np.ndarray | None]]:
    """Yield steps, and the seats in them whose rows may differ; None: another number of rows."""
    for step in _suspect_steps(a, b, pairing, steps):
        one, other = a.locate(step), b.locate(step)
        if len(one.source) != len(other.source):
            yield step, None
            continue
        seats = np.flatnonzero(_may_differ(a, b, one, other, pairing))
        if len(seats):
            yield step, seats


def _suspect_steps(a: Feed, b: Feed, pairing: Pairing, steps: range) -> Iterator[int]:
    """Yield the steps in which a row may differ: where both deal alike, seen by positions."""
    if a.deal != b.deal:
        yield from steps
        return
    size = a.recipe.global_batch_size
    at_once = max(POSITIONS_AT_ONCE // size, 1)
    for start in range(steps.start, steps.stop, at_once):
        stop = min(start + at_once, steps.stop)
        last = stop * size if a.deal.num_rows is None else min(stop * size, a.deal.num_rows)
        one, other = (feed.order.locate(start * size, last - start * size) for feed in (a, b))
        suspect = np.flatnonzero(_may_differ(a, b, one, other, pairing))
        yield from (start + np.unique(suspect // size)).tolist()


def _may_differ(a: Feed, b: Feed, one: Located, other: Located, pairing: Pairing) -> np.ndarray:
    """Tell where rows are not known to be the same, bool [n]."""
    if a.recipe.pad_id != b.recipe.pad_id:
        return np.ones(len(one.source), bool)
    is_other = (one.source != pairing.number_in_a[other.source]) | (one.row != other.row)
    found: np.ndarray = is_other | ~pairing.has_same_rows[one.source]
    return found
