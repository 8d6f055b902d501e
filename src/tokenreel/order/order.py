"""Position → (source, epoch, row), and back: the whole run in closed form.

A position is a row of the run, counted from 0. The mixture says which source it is
and which of that source's rows; those are divided into epochs, and each epoch is a
keyed permutation of the source's row plan.

    position ── mixture ──► (source, n) ── n // num_rows ──► epoch
                                        └─ permutation of (seed, source, epoch) ──► row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.order import mixture, permutation
from tokenreel.order.mixture import Mixture, position_error
from tokenreel.order.permutation import Permutation
from tokenreel.order.schedule import Change, make_schedule
from tokenreel.seeds import derive_key

VERSIONS = {"mixture": mixture.VERSION, "permutation": permutation.VERSION}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """A source as the order sees it; `max_epochs` None: as often as asked for."""

    name: str
    num_rows: int
    shuffle: bool = True
    max_epochs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Rows of consecutive positions: source int32, epoch int64, row int64, all [n]."""

    source: np.ndarray
    epoch: np.ndarray
    row: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Era:
    """From a position on, a mixture; `counts` are the rows each source had given by then."""

    start: int
    counts: tuple[int, ...]
    mixture: Mixture

    @cached_property
    def given(self) -> np.ndarray:
        """The counts, int64 [S]."""
        return np.array(self.counts, np.int64)

    @cached_property
    def tables(self) -> tuple[memoryview, ...]:
        """What the kernels of the feed take: counts, schedule, keys."""
        plan = self.mixture.schedule
        columns = (self.given, plan.starts, plan.shares, plan.slopes, plan.totals)
        return tuple(column.data for column in (*columns, self.mixture.key_array))


class Order:
    """The order of a run; immutable but for `change`, which returns a new one."""

    def __init__(
        self,
        sources: Sequence[SourceRows],
        *,
        shares: Sequence[float],
        changes: Sequence[Change] = (),
        seed: int,
    ) -> None:
        self.sources = tuple(sources)
        self.seed = seed
        first = self._mixture(shares, changes, number=0)
        self.eras: tuple[Era, ...] = (Era(start=0, counts=(0,) * len(self.sources), mixture=first),)

    def _mixture(
        self, shares: Sequence[float], changes: Sequence[Change], *, number: int
    ) -> Mixture:
        keys = tuple(derive_key("mixture", self.seed, item.name, number) for item in self.sources)
        return Mixture(schedule=make_schedule(shares, changes), keys=keys)

    def change(self, position: int, shares: Sequence[float]) -> Order:
        """Return the order that goes on with other shares from a position on.

        What comes before stays as it is, and no row of any source is repeated or lost.
        """
        if position < self.eras[-1].start:
            raise ConfigError(
                "shares can only be changed after the last change",
                expected=f">= position {self.eras[-1].start:,}",
                actual=position,
            )
        changed = Order.__new__(Order)
        changed.sources, changed.seed = self.sources, self.seed
        mixed = changed._mixture(shares, (), number=len(self.eras))
        era = Era(start=position, counts=tuple(self.counts(position).tolist()), mixture=mixed)
        changed.eras = (*self.eras, era)
        return changed

    def counts(self, position: int) -> np.ndarray:
        """Return how many rows of each source come before a position, int64 [S]."""
        era = self.era(position)
        return era.given + era.mixture.counts(position - era.start)

    def era(self, position: int) -> Era:
        """Return what holds at a position."""
        for era in reversed(self.eras):
            if position >= era.start:
                return era
        raise position_error(position)

    def locate(self, start: int, count: int) -> Located:
        """Return source, epoch and row of `count` positions from `start` on."""
        return self._rows(*self.numbers(start, count))

    def numbers(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return source (int32) and number of the row within it (int64), through all epochs."""
        if len(self.eras) == 1:
            return self.eras[0].mixture.locate(start, count)
        parts = []
        position, stop = start, start + count
        while position < stop:
            era = self.era(position)
            later = [other.start for other in self.eras if other.start > position]
            until = min([stop, *later])
            source, number = era.mixture.locate(position - era.start, until - position)
            parts.append((source, number + era.given[source]))
            position = until
        sources, numbers = zip(*parts, strict=True)
        return np.concatenate(sources), np.concatenate(numbers)

    def _rows(self, source: np.ndarray, number: np.ndarray) -> Located:
        epoch, row = np.empty_like(number), np.empty_like(number)
        for s, item in enumerate(self.sources):
            mine = np.flatnonzero(source == s)
            if not len(mine):
                continue
            # Numbers of a source ascend, so the epochs of these are those from first to last.
            epochs, places = np.divmod(number[mine], item.num_rows)
            first, last = int(epochs[0]), int(epochs[-1])
            self._refuse_beyond(item, last)
            epoch[mine] = epochs
            for e in range(first, last + 1):
                chosen = slice(None) if first == last else epochs == e
                row[mine[chosen]] = self._permute(s, e, places[chosen])
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
        return _permutation(self.seed, self.sources[source], epoch)

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
            place = row
            if item.shuffle:
                place = int(self.permutation(source, epoch).inverse(np.array([row]))[0])
            position = self._position(source, epoch * item.num_rows + place)
            if position >= 0:
                found.append((epoch, position))
        return found

    def next_epochs(self, sources: Sequence[int], position: int) -> list[int]:
        """Return where each of these sources next begins an epoch, from here on; -1: never."""
        counts = self.counts(position).tolist()
        found = []
        for source in sources:
            num_rows = self.sources[source].num_rows
            found.append(self._position(source, -(-counts[source] // num_rows) * num_rows))
        return found

    def _position(self, source: int, number: int) -> int:
        for era in reversed(self.eras):
            if number >= era.counts[source]:
                local = np.array([number - era.counts[source]])
                position = int(era.mixture.positions(source, local)[0])
                return position if position < 0 else position + era.start
        return -1


@lru_cache(maxsize=256)
def _permutation(seed: int, item: SourceRows, epoch: int) -> Permutation:
    return Permutation(item.num_rows, derive_key("epoch", seed, item.name, epoch))
