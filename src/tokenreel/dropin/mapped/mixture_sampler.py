"""Contract 003's sampler of mixtures: shares of several datasets, in closed form.

Position p of the run (epoch · N + place in the epoch, N being all samples) is the core's
order of positions, so a change of weights in the middle of an epoch repeats and loses no
sample of any dataset, and any place of the run is reached at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tokenreel.config.hints import brief
from tokenreel.dropin.mapped.samplers import RankSampler
from tokenreel.dropin.saved_state import count_of
from tokenreel.errors import ConfigError
from tokenreel.order.order import Order, SourceRows
from tokenreel.order.schedule import normalised

OWNER = "MixtureSampler"


class MixtureSampler(RankSampler):
    """Samples of several datasets in proportion to their weights, through the whole run.

    An epoch is as many samples as all datasets have. A dataset whose share is larger than
    its size begins again meanwhile, in another order; one whose share is smaller goes on
    in the next epoch where it was. Weights to the power of 1 / temperature are the shares.
    """

    def __init__(
        self,
        cumulative_sizes: Sequence[int],
        weights: Sequence[float],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        temperature: float = 1.0,
    ) -> None:
        bounds = [int(size) for size in cumulative_sizes]
        if len(bounds) == len(weights):  # torch's ConcatDataset leaves out the 0
            bounds = [0, *bounds]
        sizes = [stop - start for start, stop in pairwise(bounds)]
        if len(sizes) != len(weights) or bounds[0] != 0 or min(sizes, default=0) < 1:
            raise ConfigError(
                "cumulative_sizes do not fit the weights",
                expected=f"{len(weights) + 1} growing numbers from 0 on",
                actual=list(cumulative_sizes),
            )
        super().__init__(
            bounds[-1],
            num_replicas=num_replicas,
            rank=rank,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
        )
        self._bounds = np.array(bounds)
        self._sources = [
            SourceRows(name=str(number), num_rows=size, shuffle=shuffle)
            for number, size in enumerate(sizes)
        ]
        self._restored = False
        self._changes = [(0, self._shares(weights, temperature))]
        self._order = self._ordered()
        self.agree(self.identity)

    @property
    def identity(self) -> dict[str, Any]:
        """What the order depends on besides the ranks and the changes of weights."""
        return {
            **super().identity,
            "cumulative_sizes": self._bounds.tolist(),
            "shares": list(self._first_shares),
        }

    @property
    def _first_shares(self) -> tuple[float, ...]:
        return self._changes[0][1]

    def _shares(self, weights: Sequence[float], temperature: float) -> tuple[float, ...]:
        names = [source.name for source in self._sources]
        if len(weights) != len(names):
            raise ConfigError("one weight for each dataset", expected=len(names), actual=weights)
        given = dict(zip(names, weights, strict=True))
        return normalised(given, names, temperature=temperature)

    def _ordered(self) -> Order:
        order = Order(self._sources, shares=self._first_shares, seed=self.seed)
        return order.changed(self._changes[1:])

    def _position(self, samples: int) -> int:
        return self._epoch * self._total + samples * self.num_replicas

    def _locate(self, epoch: int, start: int, count: int) -> np.ndarray:
        world_size = self.num_replicas
        located = self._order.locate(epoch * self._total + start * world_size, count * world_size)
        mine = slice(self.rank, None, world_size)
        return self._bounds[located.source[mine]] + located.row[mine]

    def update_weights(self, weights: Sequence[float], temperature: float = 1.0) -> None:
        """Go on with other weights from the next sample on; no sample is repeated or lost.

        The weights that hold already change nothing, so a trainer may set them again
        when it resumes.
        """
        self._change(self._position(self._yielded), self._shares(weights, temperature))

    def _change(self, position: int, shares: tuple[float, ...]) -> None:
        """Let shares hold from a position on, whatever was to change there or later."""
        if self._restored and shares == self._changes[-1][1]:
            return  # they may hold only from where the sampler was when it was ahead
        before = [item for item in self._changes[1:] if item[0] < position]
        kept = [self._changes[0], *before]
        if shares != kept[-1][1]:
            kept.append((position, shares))
        if kept != self._changes:
            self._changes = kept
            self._order = self._ordered()

    def _begin(self) -> int:
        position, (changed, shares) = self._position(self._skip), self._changes[-1]
        # An epoch that is begun again has the weights that hold now, from its beginning.
        if changed > position and not self._restored:
            self._change(position, shares)
        self._restored = False
        return super()._begin()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a sampler, and which weights held from which position on."""
        changes = [[position, list(shares)] for position, shares in self._changes[1:]]
        return {**super().state_dict(), "changes": changes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says, with the weights of then."""
        given: object = state
        found = _changes(state, num_sources=len(self._sources)) if isinstance(given, dict) else []
        super().load_state_dict(state)
        self._changes = [self._changes[0], *found]
        self._order = self._ordered()
        self._restored = True


def _changes(state: Mapping[str, Any], *, num_sources: int) -> list[tuple[int, tuple[float, ...]]]:
    """Return which shares held from which position on, or raise ConfigError."""
    changes: list[tuple[int, tuple[float, ...]]] = []
    try:
        for position, shares in state.get("changes", []):
            counted = count_of({"position": position}, "position", owner=OWNER)
            changes.append((counted, tuple(float(share) for share in shares)))
        sound = all(
            len(shares) == num_sources and any(shares) and all(0 <= share <= 1 for share in shares)
            for _, shares in changes
        )
    except (TypeError, ValueError, OverflowError):
        sound = False
    positions = [position for position, _ in changes]
    if not sound or positions != sorted(positions):
        raise ConfigError(
            f"bad changes in the state of the {OWNER}",
            expected=f"growing positions, each with {num_sources:,} shares",
            actual=brief(state.get("changes")),
        )
    return changes
