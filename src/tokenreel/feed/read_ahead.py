"""Tell the system which pages will be read, so that a cold disk works while others do.

A mapped shard is read page by page, each when it is touched: on a cold cache a batch waits
for hundreds of reads in a row. Announced before, they go to the disk together, and those
of the next steps as well. An announcement costs a system call for each piece, as much as
making the batch from a warm cache; so it is only made while batches had to wait for the
disk, which the major page faults of their thread tell. Where these are not counted, or
pages cannot be announced, nothing happens here.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import local

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # Linux counts by thread
    getrusage = None  # type: ignore[assignment]

STEPS_AHEAD = 4
COLD_STEPS = 32  # that are announced after one that had to wait


class ReadAhead:
    """Announces steps while reading is cold; `announce` is given a step."""

    def __init__(self, announce: Callable[[int], None]) -> None:
        self._announce = announce
        self._cold_until = 0
        self._announced_until = 0
        self._seen = local()

    def before(self, step: int) -> None:
        """Announce what comes, if a step had to wait lately; to be called before it is made."""
        self._seen.faults = _major_faults()
        if step >= self._cold_until:
            return
        first = max(step, self._announced_until)
        self._announced_until = step + 1 + STEPS_AHEAD
        for coming in range(first, self._announced_until):
            self._announce(coming)

    def after(self, step: int) -> None:
        """Notice whether the step had to wait; to be called on the thread that made it."""
        if _major_faults() > self._seen.faults:
            self._cold_until = step + COLD_STEPS


def _major_faults() -> int:
    return 0 if getrusage is None else int(getrusage(RUSAGE_THREAD).ru_majflt)
