"""Where a run ends, and what it has not shown by then.

A run of whole passes ends when every row was shown. One whose sources have `max_epochs`
ends before the first step that would need a row of a source that has no more; a few rows of
that source, less than a batch has, may be left, and more of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.order.deal import Deal
from tokenreel.order.order import Order

FAR = 2**62  # rows, which no run has


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The number of steps, the source that has run out, and the rows that stay unshown.

    `source` None: all rows were shown. `unshown` has the sources that may not go on for ever.
    """

    steps: int
    source: str | None = None
    unshown: Mapping[str, int]

    def __str__(self) -> str:
        """Return after how many steps the run ends, why, and what it leaves unshown."""
        steps = f"the run ends after {self.steps:,} step" + "s" * (self.steps != 1)
        if self.source is None:
            return f"{steps}: every row was shown"
        left = ", ".join(f"{count:,} of {name!r}" for name, count in self.unshown.items() if count)
        return f"{steps}: source {self.source!r} runs out in the next; rows not shown: {left or 0}"


def find_ending(order: Order, deal: Deal) -> Ending | None:
    """Return where the run ends of itself; None: nowhere."""
    if deal.num_rows is not None:
        steps = -(-deal.num_rows // deal.batch_size)
        return Ending(steps=steps, unshown={item.name: 0 for item in order.sources})
    limited = {s: item for s, item in enumerate(order.sources) if item.max_epochs is not None}
    if not limited:
        return None
    limits = np.full(len(order.sources), FAR)
    for s, item in limited.items():
        limits[s] = min(item.num_rows * int(item.max_epochs or 0), FAR)
    found = order.first_beyond(limits)
    if found is None:
        return None
    position, source = found
    steps = position // deal.batch_size
    counts = order.counts(steps * deal.batch_size)
    unshown = {item.name: int(limits[s] - counts[s]) for s, item in limited.items()}
    return Ending(steps=steps, source=order.sources[source].name, unshown=unshown)


def beyond(ending: Ending, step: int) -> ConfigError:
    """Return the error for a step behind the end."""
    remedy = "end earlier" if ending.source is None else "end earlier, or allow more epochs"
    return ConfigError(
        str(ending), expected=f"a step below {ending.steps:,}", actual=step, remedy=remedy
    )
