"""See to it that the files are still whole when a source begins another epoch.

A mapped shard that is truncated kills its reader by SIGBUS; sizes that no longer fit
are found here first, as DamageError. Costs one comparison per batch, and per epoch of a
source one `stat` for each of its files. A truncation within an epoch goes unseen until
the next one: a source with mode pread has no such gap.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tokenreel.order.order import Order
from tokenreel.rows.plan import RowPlan


class EpochWatch:
    """Knows at which position each source begins its next epoch."""

    def __init__(self, plans: Sequence[RowPlan], order: Order) -> None:
        self._splits = [plan.split for plan in plans]
        self._order = order
        self._next: dict[int, int] = {}
        self._soonest = 0

    def check(self, stop: int) -> None:
        """Raise DamageError if a source begins an epoch before position `stop` in damaged files."""
        if stop <= self._soonest:
            return
        coming = dict(self._next)
        begun = [s for s in range(len(self._splits)) if coming.get(s, -1) < stop]
        for source in begun:
            # The first batch opens its shards, which checks them, so it is not checked twice.
            if source in coming:
                self._splits[source].check_sizes()
        for source, position in zip(begun, self._order.next_epochs(begun, stop), strict=True):
            coming[source] = sys.maxsize if position < 0 else position
        # Positions are replaced, never altered: threads may share a watch.
        self._next, self._soonest = coming, min(coming.values())
