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
from functools import cached_property

import numpy as np

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.order.schedule import MAX_TIME, Schedule
from tokenreel.seeds import scramble

VERSION = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """A schedule and one jitter key per source."""

    schedule: Schedule
    keys: tuple[int, ...]

    @cached_property
    def key_array(self) -> np.ndarray:
        """The keys, uint64 [S]."""
        return np.array(self.keys, np.uint64)

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
        if start < 0 or start + count > MAX_TIME:
            raise position_error(start if start < 0 else start + count)
        if self.schedule.num_sources == 1:
            return np.zeros(count, np.int32), np.arange(start, start + count)
        extension = native.extension()
        if extension is None:
            return self.locate_reference(start, count)
        source, number = np.empty(count, np.int32), np.empty(count, np.int64)
        plan = self.schedule
        extension.mix(
            start,
            plan.starts,
            plan.shares,
            plan.slopes,
            plan.totals,
            self.key_array,
            source,
            number,
        )
        return source, number

    def locate_reference(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Do the same in numpy: sort all rows that are due around these positions."""
        lows, sources, numbers = self._merge(start, start + count)
        first = start - int(lows.sum())
        return sources[first : first + count], numbers[first : first + count]

    def counts(self, position: int) -> np.ndarray:
        """Return how many rows of each source come before a position, int64 [S]."""
        if not 0 <= position <= MAX_TIME:
            raise position_error(position)
        lows, sources, _ = self._merge(position, position)
        before = sources[: position - int(lows.sum())]
        return lows + np.bincount(before, minlength=len(lows))

    def _merge(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows in their order, a few before position `start` to a few behind `stop`.

        First how many rows of each source come before all of these.
        """
        num_sources = self.schedule.num_sources
        limits = [self._limits(s, start, stop) for s in range(num_sources)]
        rows = [np.arange(low, high) for low, high in limits]
        sources = np.repeat(np.arange(num_sources, dtype=np.int32), [len(r) for r in rows])
        numbers = np.concatenate(rows)
        due = np.concatenate([self.times(s, r) for s, r in enumerate(rows)])
        # Stable, and sources stand in order, so ties go to the source that comes first.
        order = np.argsort(due, kind="stable")
        return np.array([low for low, _ in limits]), sources[order], numbers[order]

    def _limits(self, source: int, start: int, stop: int) -> tuple[int, int]:
        """Return bounds of the rows of a source that can be at positions start to stop."""
        margin = self.schedule.num_sources
        edges = np.array([max(start - margin, 0), stop + margin], np.float64)
        low, high = self.count_before(source, edges, tied=np.zeros(2, bool)).tolist()
        return low, high

    def positions(self, source: int, rows: np.ndarray) -> np.ndarray:
        """Return the position of each row of a source, int64; -1 where it is beyond 2**44."""
        if self.schedule.num_sources == 1:
            return rows.astype(np.int64)
        due = self.times(source, rows)
        comes = due < MAX_TIME
        positions = np.full(len(rows), -1, np.int64)
        before = rows[comes].astype(np.int64)
        for other in range(self.schedule.num_sources):
            if other != source:
                tied = np.full(len(before), other < source)
                before = before + self.count_before(other, due[comes], tied=tied)
        positions[comes] = before
        return positions


def position_error(position: int) -> ConfigError:
    """Return the error for a position that no run has."""
    return ConfigError("position out of range", expected="0 to 2**44", actual=position)
