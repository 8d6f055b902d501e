"""Which source a position belongs to, and which of its rows it is, in closed form.

Row i of a source falls due at the time its integrated share reaches i + j, where j is
a hashed number in [¼, ¾]; all rows of all sources, sorted by their times, are the run.

    share ½   │ · │·  │  ·│ · │·  │      one row in each stratum, somewhere in its middle
    share ¼   │    ·  │  ·    │ ·
    run         a  b a  a b a   a b a

So every prefix of n positions holds each source's share to within the number of
sources, whatever the schedule; the order within looks random; and the position of a
row, or the row of a position, takes a few comparisons per source, however large n is.
Exact, because times are only ever compared, never added up: a row has one float64
time, the same wherever it is computed, and times of one source are at least half a
row apart, far more than rounding can move them (up to 2⁴⁴ positions).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.order.schedule import MAX_TIME, Schedule
from tokenreel.seeds import scramble

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mixture:
    """A schedule and one jitter key per source."""

    schedule: Schedule
    keys: tuple[int, ...]

    def times(self, source: int, rows: np.ndarray) -> np.ndarray:
        """Return when each row of a source falls due, float64."""
        return self.schedule.times(source, rows.astype(np.float64) + self._jitter(source, rows))

    def _jitter(self, source: int, rows: np.ndarray) -> np.ndarray:
        high = (scramble(rows, self.keys[source]) >> np.uint64(11)).astype(np.float64)
        return 0.25 + high * 2.0**-54

    def count_before(self, source: int, times: np.ndarray, *, tied: np.ndarray) -> np.ndarray:
        """Return how many rows of a source are due before each time, or with it where `tied`."""
        candidate = np.floor(self.schedule.integral(source, times)).astype(np.int64)
        candidate = np.maximum(candidate, 0)
        due = self.times(source, candidate)
        return candidate + ((due < times) | (tied & (due == times)))

    def locate(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return source (int32) and row number (int64) of `count` positions from `start` on."""
        num_sources = self.schedule.num_sources
        if start < 0 or start + count > MAX_TIME:
            raise ConfigError("position out of range", expected="0 to 2**44", actual=start + count)
        if num_sources == 1:
            return np.zeros(count, np.int32), np.arange(start, start + count)
        edges = np.array([max(start - num_sources, 0), start + count + num_sources], np.float64)
        never = np.zeros(2, bool)
        limits = [self.count_before(s, edges, tied=never) for s in range(num_sources)]
        rows = [np.arange(low, high) for low, high in limits]
        sources = np.repeat(np.arange(num_sources, dtype=np.int32), [len(r) for r in rows])
        numbers = np.concatenate(rows)
        due = np.concatenate([self.times(s, r) for s, r in enumerate(rows)])
        # Stable, and sources stand in order, so ties go to the source that comes first.
        order = np.argsort(due, kind="stable")
        first = start - int(sum(low for low, _ in limits))
        chosen = order[first : first + count]
        return sources[chosen], numbers[chosen]

    def positions(self, source: int, rows: np.ndarray) -> np.ndarray:
        """Return the position of each row of a source, int64; -1 for one that never comes."""
        if self.schedule.num_sources == 1:
            return rows.astype(np.int64)
        due = self.times(source, rows)
        comes = np.isfinite(due)
        positions = np.full(len(rows), -1, np.int64)
        before = rows[comes].astype(np.int64)
        for other in range(self.schedule.num_sources):
            if other != source:
                tied = np.full(len(before), other < source)
                before = before + self.count_before(other, due[comes], tied=tied)
        positions[comes] = before
        return positions

    def counts(self, position: int) -> np.ndarray:
        """Return how many rows of each source come before a position, int64 [S]."""
        sources, numbers = self.locate(position, 64 * self.schedule.num_sources)
        counts = np.empty(self.schedule.num_sources, np.int64)
        for source in range(self.schedule.num_sources):
            mine = np.flatnonzero(sources == source)
            counts[source] = numbers[mine[0]] if len(mine) else self._count_rare(source, position)
        return counts

    def _count_rare(self, source: int, position: int) -> int:
        """Count the rows of a source whose next one is far away: bisect over its rows."""
        low, high = 0, int(position) + 1
        while low < high:
            middle = (low + high) // 2
            if 0 <= int(self.positions(source, np.array([middle]))[0]) < position:
                low = middle + 1
            else:
                high = middle
        return low
