"""Position → (source, epoch, row), and back: the whole run in closed form.

A position is a row of the run, counted from 0. The mixture says which source it is
and which of that source's rows; those are divided into epochs, and each epoch is a
keyed permutation of the source's row plan.

    position ── mixture ──► (source, n) ── n // num_rows ──► epoch
                                        └─ permutation of (seed, source, epoch) ──► row
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.order import deal, mixture, permutation
from tokenreel.order.mixture import Mixture, carry_over, position_error
from tokenreel.order.permutation import Permutation
from tokenreel.order.schedule import Change, constant, make_schedule
from tokenreel.order.succession import Succession
from tokenreel.seeds import derive_key, scramble

VERSIONS = {
    "mixture": mixture.VERSION,
    "permutation": permutation.VERSION,
    "deal": deal.VERSION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """A source as the order sees it; `max_epochs` None: as often as asked for."""

    name: str
    num_rows: int
    shuffle: bool = True
    max_epochs: int | None = None


@dataclass(frozen=True, slots=True)
class Located:
    """Rows of positions: source int32, epoch int64, row int64, all [n]."""

    source: np.ndarray
    epoch: np.ndarray
    row: np.ndarray

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Source, epoch and row."""
        return self.source, self.epoch, self.row


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """From a position on, a mixture; its time 0 is that position."""

    start: int
    mixture: Mixture | Succession

    def counts(self, position: int) -> np.ndarray:
        """Return how many rows each source has given before a position, int64 [S]."""
        return self.mixture.counts(position - self.start)


class Order:
    """The order of a run; immutable but for `change`, which returns a new one.

    `shares` None: one source after the other, in the order in which they stand.
    """

    def __init__(
        self,
        sources: Sequence[SourceRows],
        *,
        shares: Sequence[float] | None,
        changes: Sequence[Change] = (),
        seed: int,
    ) -> None:
        self.sources = tuple(sources)
        self.seed = seed
        self.num_rows = np.array([item.num_rows for item in self.sources], np.int64)
        self.epoch_keys = self._keys("epoch")
        self.eras: tuple[Era, ...] = (Era(start=0, mixture=self._first(shares, changes)),)

    def _first(
        self, shares: Sequence[float] | None, changes: Sequence[Change]
    ) -> Mixture | Succession:
        if shares is None:
            return Succession(num_rows=self.num_rows)
        return Mixture(
            schedule=make_schedule(shares, changes),
            keys=self._keys("mixture"),
            given=np.zeros(len(self.sources), np.int64),
            owed=np.zeros(len(self.sources)),
        )

    def _keys(self, purpose: str) -> np.ndarray:
        """Return a key for each source, uint64 [S]."""
        keys = [derive_key(purpose, self.seed, item.name) for item in self.sources]
        return np.array(keys, np.uint64)

    def change(self, position: int, shares: Sequence[float]) -> Order:
        """Return the order that goes on with other shares from a position on."""
        return self.changed([(position, shares)])

    def changed(self, changes: Sequence[tuple[int, Sequence[float]]]) -> Order:
        """Return the order that goes on with other shares from each of these positions on.

        What comes before stays as it is, and no row of any source is repeated or lost. What a
        source was owed by then, or was ahead, is carried over. Costs some microseconds a change.
        """
        if not changes:
            return self
        last = self.eras[-1]
        starts = [last.start, *(position for position, _ in changes)]
        for before, position in pairwise(starts):
            if position < before or isinstance(last.mixture, Succession):
                raise ConfigError(
                    "shares can only be changed after the last change",
                    expected=f">= position {before:,}",
                    actual=position,
                )
        assert isinstance(last.mixture, Mixture)
        keys = last.mixture.keys
        shares = np.array([shares for _, shares in changes], np.float64)
        given, owed = np.empty(shares.shape, np.int64), np.empty(shares.shape)
        given[0], owed[0] = last.mixture.carried(starts[1] - last.start)
        carry_over(np.diff(starts[1:]), shares[:-1], keys, given, owed)
        eras = [
            Era(start=start, mixture=Mixture(schedule=constant(s), keys=keys, given=g, owed=o))
            for start, s, g, o in zip(starts[1:], shares, given, owed, strict=True)
        ]
        order = copy(self)
        order.eras = (*self.eras, *eras)
        return order

    @property
    def first_shares(self) -> np.ndarray:
        """The shares of the sources at the beginning of the run, float64 [S]."""
        first = self.eras[0].mixture
        if isinstance(first, Succession):
            return self.num_rows / self.num_rows.sum()
        return first.schedule.shares[0]

    def shares_from(self, position: int) -> np.ndarray | None:
        """Return the shares that hold from a position on to the end; None: they will change."""
        last = self.eras[-1]
        if position < last.start or isinstance(last.mixture, Succession):
            return None
        schedule = last.mixture.schedule
        settled = position - last.start >= schedule.starts[-1]
        return schedule.shares[-1] if settled else None

    def shares_at(self, position: int) -> np.ndarray | None:
        """Return the shares that hold at a position; None: sources come one after the other."""
        era = self.era(position)
        if isinstance(era.mixture, Succession):
            return None
        return era.mixture.schedule.shares_at(position - era.start)

    def counts(self, position: int) -> np.ndarray:
        """Return how many rows of each source come before a position, int64 [S]."""
        return self.era(position).counts(position)

    def era(self, position: int) -> Era:
        """Return what holds at a position."""
        return self.eras[self._number_of_era(position)]

    def _number_of_era(self, position: int) -> int:
        if position >= self.eras[-1].start:  # as it is nearly always
            return len(self.eras) - 1
        if position < 0:
            raise position_error(position)
        return bisect_right(self.eras, position, key=attrgetter("start")) - 1

    def locate(self, start: int, count: int) -> Located:
        """Return source, epoch and row of `count` positions from `start` on."""
        return self._rows(*self.numbers(start, count))

    def numbers(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return source (int32) and number of the row within it (int64), through all epochs."""
        first, last = self._number_of_era(start), self._number_of_era(start + max(count - 1, 0))
        starts = [start, *(era.start for era in self.eras[first + 1 : last + 1]), start + count]
        parts = [
            era.mixture.locate(begin - era.start, end - begin)
            for era, begin, end in zip(
                self.eras[first : last + 1], starts, starts[1:], strict=False
            )
        ]
        if len(parts) == 1:
            return parts[0]
        sources, numbers = zip(*parts, strict=True)
        return np.concatenate(sources), np.concatenate(numbers)

    def _rows(self, source: np.ndarray, number: np.ndarray) -> Located:
        epoch, row = np.empty_like(number), np.empty_like(number)
        for s in np.flatnonzero(np.bincount(source)).tolist():
            item, mine = self.sources[s], np.flatnonzero(source == s)
            # Numbers of a source ascend, so the epochs of these are those from first to last.
            epochs, within = np.divmod(number[mine], item.num_rows)
            first, last = int(epochs[0]), int(epochs[-1])
            self._refuse_beyond(item, last)
            epoch[mine] = epochs
            for e in range(first, last + 1):
                chosen = slice(None) if first == last else epochs == e
                row[mine[chosen]] = self._permute(s, e, within[chosen])
        return Located(source=source, epoch=epoch, row=row)

    def _refuse_beyond(self, item: SourceRows, epoch: int) -> None:
        if item.max_epochs is not None and epoch >= item.max_epochs:
            raise ConfigError(
                f"source {item.name!r} has run out: all its rows were shown",
                expected=f"at most {item.max_epochs} epochs of {item.num_rows:,} rows",
                remedy="end the run earlier, give it less weight, or allow more epochs",
            )

    def permutation(self, source: int, epoch: int) -> Permutation:
        """Return the order of a source's rows in an epoch."""
        return _permutation(int(self.num_rows[source]), int(self.epoch_keys[source]), epoch)

    def keys_of_epochs(self, epochs: np.ndarray) -> np.ndarray:
        """Return the keys of the permutations of epochs, int64 [S, E], of all sources, uint64."""
        return scramble(epochs, self.epoch_keys[:, None])

    def _permute(self, source: int, epoch: int, numbers: np.ndarray) -> np.ndarray:
        if not self.sources[source].shuffle:
            return numbers
        return self.permutation(source, epoch).forward(numbers)

    def positions(self, source: int, row: int, *, epochs: range) -> list[tuple[int, int]]:
        """Return (epoch, position) of a row of a source in these epochs; O(epochs)."""
        item = self.sources[source]
        found = []
        last = epochs.stop if item.max_epochs is None else min(epochs.stop, item.max_epochs)
        for epoch in range(epochs.start, last):
            within = row  # how many rows of its epoch come before it
            if item.shuffle:
                within = int(self.permutation(source, epoch).inverse(np.array([row]))[0])
            position = self.first_position(source, epoch * item.num_rows + within)
            if position >= 0:
                found.append((epoch, position))
        return found

    def first_position(self, source: int, number: int) -> int:
        """Return where a row of a source, counted through all epochs, comes; -1: never."""
        for era in reversed(self.eras):
            given = 0 if isinstance(era.mixture, Succession) else int(era.mixture.given[source])
            if number >= given:
                position = int(era.mixture.positions(source, np.array([number]))[0])
                return position if position < 0 else position + era.start
        return -1

    def first_beyond(self, limits: np.ndarray) -> tuple[int, int] | None:
        """Return (position, source) of the first row with a number not below its source's limit.

        `limits` int64 [S] count through all epochs; None: no such row ever comes.
        """
        # The last era before which no source had given more than its limit: there, or never.
        number = bisect_left(self.eras[1:], True, key=lambda era: _is_beyond(era, limits))
        era = self.eras[number]
        if isinstance(era.mixture, Succession):
            return None
        # Rows come by their times, so the first of those at their limits is the first of all.
        source = int(np.argmin(era.mixture.times(np.arange(len(self.sources)), limits)))
        position = int(era.mixture.positions(source, limits[source : source + 1])[0])
        return None if position < 0 else (position + era.start, source)

    def earliest_positions(self, numbers: np.ndarray) -> np.ndarray:
        """Return positions before which a row of each source does not come, float64 [S].

        `numbers` int64 [S] count through all epochs, and are not given before the last change.
        A row comes at most S positions before its time, unless weights were changed.
        """
        last, everyone = self.eras[-1], np.arange(len(self.sources))
        if isinstance(last.mixture, Succession):
            exact = [last.mixture.positions(s, numbers[s : s + 1])[0] for s in everyone.tolist()]
            return np.array(exact, np.float64)
        if len(everyone) == 1:
            return (last.start + numbers - last.mixture.given).astype(np.float64)
        return last.start + last.mixture.times(everyone, numbers) - len(everyone)


def _is_beyond(era: Era, limits: np.ndarray) -> bool:
    """Return whether a source had given more rows than its limit before an era."""
    return isinstance(era.mixture, Mixture) and bool((era.mixture.given > limits).any())


@lru_cache(maxsize=256)
def _permutation(num_rows: int, key: int, epoch: int) -> Permutation:
    return Permutation(num_rows, int(scramble(np.array(epoch), key)))
