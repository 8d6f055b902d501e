"""See to it that the files are still whole while they are mapped.

A mapped file that is truncated is an error in the kernel that reads it (native/guard.c);
numpy, which serves without the kernels, is killed by SIGBUS. Sizes that no longer fit are
found here before either, if there is time: all files of a source when it begins
another epoch, and one file after the other every 10 ms meanwhile. So is a plan that turned
out, in the background, to fail its checksum (rows/verified.py). Costs a comparison and a look
at the clock per batch, and 3 µs per 10 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from time import monotonic

import numpy as np

from tokenreel.order.order import Order
from tokenreel.rows.row_plan import RowPlan
from tokenreel.rows.verified import raise_damage
from tokenreel.store.file_arrays import ArrayFile

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
    """Knows before which position no source begins its next epoch."""

    def __init__(self, plans: Sequence[RowPlan], order: Order) -> None:
        self._splits = [plan.split for plan in plans]
        self._plan_folders = [plan.folder for plan in plans if plan.folder is not None]
        self._order = order
        self._soonest = 0.0
        # The epoch of each source that is looked at next, and where at the earliest it begins.
        self._epochs = np.zeros(len(plans), np.int64)
        self._earliest = np.full(len(plans), -1.0)
        shards = [shard for split in self._splits for shard in split.shards]
        mapped = [shard for shard in shards if shard.mode == "mmap"]
        self._patrol = Patrol([file for shard in mapped for file in shard.files])

    def in_order(self, order: Order) -> EpochWatch:
        """Return a watch over the same files that goes by another order."""
        changed = copy(self)
        changed._order, changed._soonest = order, -1.0
        changed._epochs, changed._earliest = self._epochs.copy(), self._earliest.copy()
        return changed

    def check(self, stop: int) -> None:
        """Raise DamageError if a source begins an epoch before position `stop` in damaged files.

        Or if a file whose turn it is turns out to be. Sources of a mixture may be looked at some
        steps early: exactly where an epoch begins takes longer to find than to look.
        """
        raise_damage(self._plan_folders)
        if stop <= self._soonest:
            self._patrol.check()
            return
        epochs, earliest = self._epochs.copy(), self._earliest.copy()
        begun = np.flatnonzero(earliest < stop)
        for source in begun.tolist():
            # The first batch opens its shards, which checks them, so it is not checked twice.
            if epochs[source] > 0:
                self._splits[source].check_sizes()
        order = self._order
        current = order.counts(stop) // order.num_rows
        epochs[begun] = np.maximum(epochs, current)[begun] + 1
        earliest = order.earliest_positions(epochs * order.num_rows)
        # Replaced, never altered: threads may share a watch.
        self._epochs, self._earliest = epochs, earliest
        self._soonest = float(earliest.min())
