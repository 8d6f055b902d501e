"""The shares of sources over the steps of a run, as they are scheduled.

Asked of the order itself, which knows them in closed form: some microseconds a column, however
many steps there are.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenreel.feed.feed import Feed


def rows_before(feed: Feed, step: int) -> np.ndarray:
    """Return how many rows of each source come before a step, int64 [S]."""
    position = step * feed.recipe.global_batch_size
    if feed.deal.num_rows is not None:  # the last step of an evaluation may have fewer rows
        position = min(position, feed.deal.num_rows)
    return feed.order.counts(position)


def drawn_steps(feed: Feed) -> int:
    """Return how many steps a drawing of the run has; without end, some way into its last phase."""
    if feed.num_steps is not None:
        return feed.num_steps
    settled = [phase.start_step + phase.ramp_steps for phase in feed.recipe.phases]
    return max(10, max([0, feed.step, *settled]) * 5 // 4)


def share_curve(
    feed: Feed, *, start_step: int = 0, stop_step: int, columns: int
) -> tuple[list[int], np.ndarray]:
    """Return borders of equal stretches of steps, and each source's share in their middles.

    As many stretches as there are columns or steps; shares float64 [S, stretches], as they are
    scheduled: what a few rows have in fact is that, rounded to whole rows.
    """
    num_steps = stop_step - start_step
    number = max(1, min(columns, num_steps))
    borders = [start_step + num_steps * k // number for k in range(number + 1)]
    return borders, np.stack([_shares(feed, *ends) for ends in pairwise(borders)], axis=1)


def _shares(feed: Feed, start: int, stop: int) -> np.ndarray:
    """Return the shares in the middle of some steps, float64 [S]."""
    middle = (start + stop) * feed.recipe.global_batch_size // 2
    shares = feed.order.shares_at(middle)
    if shares is not None:
        return shares
    rows = rows_before(feed, stop) - rows_before(feed, start)  # one source after the other
    return rows / max(int(rows.sum()), 1)
