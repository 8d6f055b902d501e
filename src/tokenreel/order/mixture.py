"""Which source a position belongs to, and which of its rows it is, in closed form.

Row n of a source falls due at the time its integrated share reaches n + j, where j is a
hashed number in (0, 1); all rows of all sources, sorted by their times, are the run.

    share ½   │ · │·  │  ·│   ·│·  │     one row in each stratum, anywhere in it
    share ¼   │    ·  │  ·     │ ·
    run         a  b a  a  b   a a  b

What that guarantees, for S sources of any shares and any schedule:

- Where a batch's size times its shares is whole, and the shares are constant, every batch
  has exactly these counts.
- In every prefix of the run a source's count differs from its integrated share by less than
  1 + S·(its largest share so far). That is the worst case; as strata are independent the
  part with S grows as its root: with 1,000 small sources beside one of share ½ the large one
  is off by 6.5 rows (standard deviation), at any length of the run. For independent draws it
  would be √n / 2.
- A source's count in a batch varies no more than with independent draws: 0 to 1 times their
  variance, near 1 where a batch is short beside a source's strata.

Weights that are changed on the way (`owed`) keep no row back and repeat none, and what a
source is owed is paid as soon as it has a share again. For random changes in every step both
hold too (twice the bound, batches of 8 rows and more). They do not for changes that follow
the counts, or that take nearly all from one source and give it to the next in every step:
then debts add up (measured: 1.8 times the bound with 300 sources) and are paid in one batch
(10 times the variance of draws, with 10 sources in turn at .99).

The position of a row, or the row of a position, takes a few operations per source, however
far the run has come: the rows before a time are counted by the integral, and times that
deviate from positions by about √S are put right by sorting the rows around them. Exact,
because times are only ever compared, never added up: a row has one float64 time, the same
wherever it is computed, and rows of one source are at least 1/32 of a position apart, far
more than rounding moves them (up to 2⁴⁴ positions).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.order.schedule import MAX_TIME, Schedule, constant
from tokenreel.rows.pieces import ragged_index
from tokenreel.seeds import scramble

VERSION = 2
MARGIN = 1.0 / 64  # of a position: how far a row keeps from both ends of its stratum


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """Rows of several sources from time 0 on, by a schedule of their shares.

    keys: uint64 [S], of the jitter; given: int64 [S], how many rows each source had given
    before time 0; owed: float64 [S], by how much they fell short of their shares by then,
    negative if they were ahead.
    """

    schedule: Schedule
    keys: np.ndarray
    given: np.ndarray
    owed: np.ndarray

    @cached_property
    def jitter(self) -> tuple[np.ndarray, np.ndarray]:
        """Offset and width, float64 [S], of the jitter less what is owed."""
        margin = MARGIN * self.schedule.largest_shares
        return margin - self.owed, (1.0 - 2.0 * margin) * 2.0**-53

    @cached_property
    def tables(self) -> tuple[memoryview, ...]:
        """What the kernels take: starts, shares, slopes, totals, keys, given, jitter."""
        plan = self.schedule
        columns = (plan.starts, plan.shares, plan.slopes, plan.totals, self.keys, self.given)
        return tuple(column.data for column in (*columns, *self.jitter))

    @property
    def num_sources(self) -> int:
        """How many sources there are."""
        return len(self.keys)

    def times(self, sources: np.ndarray | int, numbers: np.ndarray) -> np.ndarray:
        """Return when rows with these numbers, counted through the run, fall due, float64."""
        offset, width = self.jitter
        hashed = (scramble(numbers, self.keys[sources]) >> np.uint64(11)).astype(np.float64)
        within = offset[sources] + hashed * width[sources]
        return self.schedule.times(sources, (numbers - self.given[sources]) + within)

    def count_before(self, time: float, *, source: int = 0) -> np.ndarray:
        """Return the number of each source's first row that is due at a time or later, int64 [S].

        Of two rows that are due at once that of the source which stands first comes first:
        what ties with `time` counts as before it for sources before `source`.
        """
        everyone = np.arange(self.num_sources)
        tied = everyone < source
        # Clipped: a time far before 0, of a tiny share that is owed a row, is no whole number.
        due = np.clip(self.schedule.integral(everyone, time) + self.owed, 0.0, 2.0**53)
        due[self.schedule.largest_shares == 0.0] = 0.0  # owed or not, they give nothing
        # Rounding may put the integral on the other side of a whole number: look around it.
        first = self.given + np.maximum(np.floor(due).astype(np.int64) - 1, 0)
        count = first.copy()
        for more in range(3):
            times = self.times(everyone, first + more)
            count += (times < time) | (tied & (times == time))
        return count

    def locate(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return source (int32) and row number (int64) of `count` positions from `start` on."""
        if start < 0 or start + count > MAX_TIME:
            raise position_error(start if start < 0 else start + count)
        if self.num_sources == 1:
            first = start + int(self.given[0])
            return np.zeros(count, np.int32), np.arange(first, first + count)
        extension = native.extension()
        if extension is None:
            return self.locate_reference(start, count)
        source, number = np.empty(count, np.int32), np.empty(count, np.int64)
        extension.mix(start, *self.tables, source, number, None)
        return source, number

    def locate_reference(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Do the same in numpy: sort all rows that are due around these positions."""
        first, sources, numbers = self._merge(start, start + count)
        skipped = start - int((first - self.given).sum())
        return sources[skipped : skipped + count], numbers[skipped : skipped + count]

    def counts(self, position: int) -> np.ndarray:
        """Return how many rows each source has given before a position, in all, int64 [S]."""
        if not 0 <= position <= MAX_TIME:
            raise position_error(position)
        extension = native.extension()
        if extension is None or self.num_sources == 1:
            return self.counts_reference(position)
        counts = np.empty(self.num_sources, np.int64)
        extension.mix(position, *self.tables, None, None, counts)
        return counts

    def counts_reference(self, position: int) -> np.ndarray:
        """Do the same in numpy."""
        if self.num_sources == 1:
            return self.given + position
        first, sources, _ = self._merge(position, position)
        before = sources[: position - int((first - self.given).sum())]
        return first + np.bincount(before, minlength=self.num_sources)

    def carried(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what each source has given before a position, and what it is owed there."""
        counts = self.counts(position)
        due = self.schedule.integral(np.arange(self.num_sources), float(position))
        return counts, self.owed + (due - (counts - self.given))

    def _merge(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows in their order, from a little before position `start` to behind `stop`.

        First the number of each source's first row among them, int64 [S].
        """
        # So far times deviate from positions, seldom further; where they do, look further.
        around = 4.0 * self.num_sources**0.5
        first, last = self.given, self.given
        reach = around
        while start > reach:
            first = self.count_before(start - reach)
            if int((first - self.given).sum()) <= start:
                break
            first, reach = self.given, 2 * reach
        reach = around
        while int((last - self.given).sum()) < stop:
            last, reach = self.count_before(stop + reach), 2 * reach
        count = np.maximum(last - first, 0)
        sources = np.repeat(np.arange(self.num_sources, dtype=np.int32), count)
        numbers = ragged_index(first, count)
        # Stable, and sources stand in order, so ties go to the source that comes first.
        order = np.argsort(self.times(sources, numbers), kind="stable")
        return first, sources[order], numbers[order]

    def positions(self, source: int, numbers: np.ndarray) -> np.ndarray:
        """Return the position of each row of a source, int64; -1 where it is beyond 2**44."""
        if self.num_sources == 1:
            alone = numbers.astype(np.int64) - self.given[0]
            return np.where(alone < MAX_TIME, alone, -1)
        due = self.times(source, numbers)
        others = np.arange(self.num_sources) != source
        positions = np.full(len(numbers), -1, np.int64)
        for row in np.flatnonzero(due < MAX_TIME):
            before = (self.count_before(float(due[row]), source=source) - self.given)[others]
            positions[row] = numbers[row] - self.given[source] + int(before.sum())
        return positions


def carry_over(
    lengths: np.ndarray, shares: np.ndarray, keys: np.ndarray, given: np.ndarray, owed: np.ndarray
) -> None:
    """Fill rows 1 to E of `given` and `owed`, [E + 1, S]: those behind each of E changes.

    Change e lets shares[e] hold for lengths[e] positions; row 0 is what was before the first.
    """
    extension = native.extension()
    if extension is not None:
        extension.carry(lengths, shares, keys, given, owed)
        return
    for e, length in enumerate(lengths.tolist()):
        mixed = Mixture(schedule=constant(shares[e]), keys=keys, given=given[e], owed=owed[e])
        given[e + 1], owed[e + 1] = mixed.carried(length)


def position_error(position: int) -> ConfigError:
    """Return the error for a position that no run has."""
    return ConfigError("position out of range", expected="0 to 2**44", actual=position)
