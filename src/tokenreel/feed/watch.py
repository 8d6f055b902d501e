"""See to it that the files are still whole while they are mapped.

A mapped shard that is truncated kills its reader by SIGBUS; sizes that no longer fit are
found here first, as DamageError, if there is time: all files of a source when it begins
another epoch, and one file after the other every 10 ms meanwhile. A batch that touches
what is gone before its file's turn has come is not saved: a source with mode pread has no
such gap. Costs a comparison and a look at the clock per batch, and 3 µs per 10 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import monotonic

from tokenreel.order.order import Order
from tokenreel.rows.plan import RowPlan
from tokenreel.store.arrays import ArrayFile

PATROL_SECONDS = 0.01


class Patrol:
    """Looks at the size of one file after the other, seldom enough to cost nothing.

    A file that was replaced is left alone: what was mapped of the old one is still there.
    """

    def __init__(self, files: Sequence[ArrayFile]) -> None:
        self._files = files
        self._inodes: dict[int, int] = {}
        self._turn = 0
        self._due = 0.0

    def check(self) -> None:
        """Raise DamageError if the file whose turn it is has changed its size."""
        now = monotonic()
        if now < self._due or not self._files:
            return
        self._due = now + PATROL_SECONDS
        turn = self._turn
        self._turn = (turn + 1) % len(self._files)
        file = self._files[turn]
        try:
            found = file.path.stat()
        except OSError:  # its name is gone; the mapping is not
            return
        if self._inodes.setdefault(turn, found.st_ino) != found.st_ino:
            return
        if found.st_size != file.file_bytes:
            file.check_size()


class EpochWatch:
    """Knows at which position each source begins its next epoch."""

    def __init__(self, plans: Sequence[RowPlan], order: Order) -> None:
        self._splits = [plan.split for plan in plans]
        self._order = order
        self._next: dict[int, int] = {}
        self._soonest = 0
        shards = [shard for split in self._splits for shard in split.shards]
        mapped = [shard for shard in shards if shard.mode == "mmap"]
        self._patrol = Patrol([file for shard in mapped for file in shard.files])

    def check(self, stop: int) -> None:
        """Raise DamageError if a source begins an epoch before position `stop` in damaged files.

        Or if a file whose turn it is turns out to be.
        """
        if stop <= self._soonest:
            self._patrol.check()
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
