"""Shares of sources over time, and their integral in closed form.

Time counts rows of the run (positions) and is continuous. Between breakpoints each
share is a straight line, so its integral is a parabola and has an inverse; no history
is replayed, however far a run has come. Shares always sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from tokenreel.config.hints import did_you_mean
from tokenreel.errors import ConfigError

MAX_TIME = 2.0**44  # beyond it a float64 no longer tells the rows of a source apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From `start` on, go to these shares, in a straight line over `ramp` positions."""

    start: int
    shares: tuple[float, ...]
    ramp: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """Shares as straight lines, one stretch after the other; all arrays float64.

    starts: [K], from 0; shares, slopes, totals: [K, S]: share at the stretch's start,
    its change per position, and the integral up to there.
    """

    starts: np.ndarray
    shares: np.ndarray
    slopes: np.ndarray
    totals: np.ndarray

    @property
    def num_sources(self) -> int:
        """How many sources there are."""
        return int(self.shares.shape[1])

    @cached_property
    def largest_shares(self) -> np.ndarray:
        """The largest share that each source ever has, float64 [S]."""
        last = np.diff(self.starts, append=self.starts[-1])[:, None]
        return np.maximum(self.shares, self.shares + last * self.slopes).max(axis=0)

    def integral(self, sources: np.ndarray | int, times: np.ndarray | float) -> np.ndarray:
        """Return how many rows of these sources are due by these times, as real numbers.

        Sources and times broadcast against each other.
        """
        stretch = np.maximum(np.searchsorted(self.starts, times, side="right") - 1, 0)
        elapsed = times - self.starts[stretch]
        share, slope = self.shares[stretch, sources], self.slopes[stretch, sources]
        return self.totals[stretch, sources] + elapsed * (share + 0.5 * slope * elapsed)

    def times(self, sources: np.ndarray | int, due: np.ndarray) -> np.ndarray:
        """Return when so many rows of these sources are due; inf where that never comes.

        What was due before time 0 has a negative time, as if the first share had always held.
        """
        sources = np.broadcast_to(sources, np.shape(due))
        # The last stretch that begins before so many rows are due, each source by its own totals.
        stretch = np.count_nonzero(self.totals[1:, sources] <= due, axis=0)
        share, slope = self.shares[stretch, sources], self.slopes[stretch, sources]
        rest = due - self.totals[stretch, sources]
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(np.maximum(share * share + 2.0 * slope * rest, 0.0))
            ramped = np.where(rest > 0.0, (2.0 * rest) / (share + root), 0.0)
            elapsed = np.where(slope == 0.0, rest / share, ramped)
        never = (share == 0.0) & (slope == 0.0)
        return np.where(never, np.inf, self.starts[stretch] + elapsed)

    def shares_at(self, time: float) -> np.ndarray:
        """Return the shares at one time, float64 [S]."""
        stretch = int(np.searchsorted(self.starts, time, side="right")) - 1
        elapsed = time - self.starts[stretch]
        return self.shares[stretch] + elapsed * self.slopes[stretch]


def constant(shares: np.ndarray) -> Schedule:
    """Return the schedule of shares that never change, float64 [S]."""
    zeros = np.zeros((1, len(shares)))
    return Schedule(starts=zeros[:, 0], shares=shares[None], slopes=zeros, totals=zeros)


def make_schedule(shares: Sequence[float], changes: Sequence[Change] = ()) -> Schedule:
    """Return the stretches of a schedule: constant, ramp, constant, ramp, …"""
    current = np.array(shares, np.float64)
    rows: list[tuple[float, np.ndarray, np.ndarray]] = [(0.0, current, np.zeros(len(current)))]
    end_of_ramp = 0
    for change in sorted(changes, key=lambda change: change.start):
        if change.start < end_of_ramp:
            raise ConfigError(
                "a phase begins before the ramp of the one before has ended",
                expected=f"from position {end_of_ramp:,} on",
                actual=f"position {change.start:,}",
            )
        target = np.array(change.shares, np.float64)
        if change.ramp:
            slope = (target - current) / change.ramp
            rows.append((float(change.start), current, slope))
        end_of_ramp = change.start + change.ramp
        rows.append((float(end_of_ramp), target, np.zeros(len(target))))
        current = target
    return _integrated(rows)


def _integrated(rows: list[tuple[float, np.ndarray, np.ndarray]]) -> Schedule:
    starts = np.array([start for start, _, _ in rows])
    shares = np.array([share for _, share, _ in rows])
    slopes = np.array([slope for _, _, slope in rows])
    totals = np.zeros_like(shares)
    for k in range(1, len(rows)):
        length = starts[k] - starts[k - 1]
        gained = length * (shares[k - 1] + 0.5 * slopes[k - 1] * length)
        totals[k] = totals[k - 1] + gained
    return Schedule(starts=starts, shares=shares, slopes=slopes, totals=totals)


def normalised(
    weights: Mapping[str, float], names: Sequence[str], *, temperature: float = 1.0
) -> tuple[float, ...]:
    """Return shares in the order of `names`; a weight of 0 stays 0 at every temperature.

    >>> normalised({"a": 9, "b": 1}, ["a", "b"], temperature=2.0)
    (0.75, 0.25)
    """
    unknown = sorted(str(name) for name in weights if name not in names)
    if unknown:
        raise ConfigError(
            f"weights for sources that do not exist: {', '.join(unknown)}",
            expected=", ".join(names),
            remedy=did_you_mean(unknown[0], names),
        )
    if not 0 < temperature < math.inf:
        raise ConfigError("bad temperature", expected="> 0", actual=temperature)
    try:
        values = [float(weights.get(name, 0.0)) for name in names]
    except (TypeError, ValueError, OverflowError):  # no number, or one beyond floats
        values = []
    is_number = all(isinstance(value, (Real, np.number)) for value in weights.values())
    if not is_number or not any(values) or not all(0 <= value < math.inf for value in values):
        raise ConfigError(
            "weights must be finite, not negative, and not all 0",
            actual=f"{dict(weights)!r:.200}",
        )
    return shares_of(values, temperature=float(temperature))


def shares_of(weights: Sequence[float], *, temperature: float) -> tuple[float, ...]:
    """Return the shares of weights that are finite, not negative and not all 0."""
    most = max(weights)  # relative to it no power can overflow, nor all of them vanish
    powers = [(value / most) ** (1.0 / temperature) if value else 0.0 for value in weights]
    total = math.fsum(powers)  # rounded once: sum() is not the same in every Python
    return tuple(power / total for power in powers)
