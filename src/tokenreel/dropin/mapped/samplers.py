"""Contract 003's sampler: which samples a rank sees, in closed form.

Nothing is laid out: a sampler of 10⁹ samples is made in microseconds, and starts anywhere
at once. Sample k of rank r is position k·R + r of the epoch, as in torch's sampler, so
that the global batches do not depend on the number of ranks R as long as their size does
not. An epoch's order is a keyed permutation of (seed, epoch), hashed and never added. Under
torch.distributed a sampler is made on all ranks, and all compare what it depends on.

    drop_last     the last N mod R positions are left out
    otherwise     the first positions come again until every rank has the same number
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sized
from typing import Any

import numpy as np
import torch

from tokenreel.dropin.saved_state import check_identity, check_version, count_of
from tokenreel.errors import ConfigError
from tokenreel.feed.agreement import claim
from tokenreel.order.order import VERSIONS, Order, SourceRows
from tokenreel.torch.ranks import compare, ranks_of, running

POSITIONS_AT_ONCE = 1024


class RankSampler(torch.utils.data.Sampler[int]):
    """What both samplers share: ranks, epochs, where an epoch is begun and how far it is."""

    _order: Order

    def __init__(
        self,
        total: int,
        *,
        num_replicas: int | None,
        rank: int | None,
        shuffle: bool,
        seed: int,
        drop_last: bool,
    ) -> None:
        self.rank, self.num_replicas = ranks_of(rank, num_replicas)
        # Who gives ranks may give some processes none: they would be waited for.
        self.asks_others = num_replicas is None and running()
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self._total = total
        spare = 0 if drop_last else self.num_replicas - 1
        self.num_samples = (total + spare) // self.num_replicas
        self.total_size = self.num_samples * self.num_replicas
        if self.num_samples == 0:
            raise ConfigError(
                "there are fewer samples than ranks",
                expected=f">= {self.num_replicas:,}",
                actual=total,
            )
        self._epoch = 0
        self._skip = 0
        self._yielded = 0

    @abstractmethod
    def _locate(self, epoch: int, start: int, count: int) -> np.ndarray:
        """Return so many samples of this rank in an epoch, int64."""

    @property
    def identity(self) -> dict[str, Any]:
        """What the order depends on besides the ranks."""
        return {"seed": self.seed, "shuffle": self.shuffle, "order": dict(VERSIONS)}

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raise on every rank unless all see the same facts; without other ranks, do nothing."""
        if self.asks_others:
            compare(claim(facts, rank=self.rank, world_size=self.num_replicas))

    def set_epoch(self, epoch: int) -> None:
        """Turn to an epoch; another one than before begins at its beginning."""
        if epoch != self._epoch:
            self._yielded = self._skip
        self._epoch = epoch

    def set_skip(self, skip: int) -> None:
        """Leave out so many samples of this rank when iteration next begins, and only then."""
        if skip < 0:
            raise ConfigError("bad skip", expected=">= 0", actual=skip)
        self._skip = self._yielded = skip

    def __iter__(self) -> Iterator[int]:
        return (int(samples[0]) for samples in self.batches(1))

    def batches(self, size: int) -> Iterator[np.ndarray]:
        """Yield `size` samples at a time, int64; a rest that fills none is left out.

        The iteration begins where set_skip said, as that over single samples does, and not
        before its first batch is asked for: torch asks for iterators it then does not use.
        """
        epoch, at = self._epoch, self._begin()

        at_once = size * max(POSITIONS_AT_ONCE // (size * self.num_replicas), 1)
        while at + size <= self.num_samples:
            order, count = self._order, min(at_once, self.num_samples - at)
            samples = self._locate(epoch, at, count)
            for first in range(0, count - size + 1, size):
                at += size
                self._yielded = at
                yield samples[first : first + size]
                if self._order is not order:  # the weights were changed: what follows is another
                    break

    def _begin(self) -> int:
        start, self._skip = self._skip, 0
        self._yielded = start
        return start

    def __len__(self) -> int:
        return self.num_samples

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, how far it is, and what that belongs to."""
        return {
            "epoch": self._epoch,
            "samples_yielded": self._yielded,
            "num_replicas": self.num_replicas,
            "rank": self.rank,
            **self.identity,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says, on any number of ranks; iteration begins there."""
        owner = type(self).__name__
        check_version(state, owner=owner)
        check_identity(state, self.identity, owner=owner)
        world_size = count_of(state, "num_replicas", owner=owner) or self.num_replicas
        positions = count_of(state, "samples_yielded", owner=owner) * world_size
        if positions % self.num_replicas:
            raise ConfigError(
                "the state lies between two samples of these ranks",
                expected=f"a multiple of {self.num_replicas:,} positions",
                actual=positions,
                remedy="resume on a number of ranks that divides the global batch",
            )
        self._epoch = count_of(state, "epoch", owner=owner)
        self.set_skip(positions // self.num_replicas)


class DistributedSampler(RankSampler):
    """Every sample of a dataset once an epoch, shared out over the ranks."""

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
    ) -> None:
        super().__init__(
            len(dataset),
            num_replicas=num_replicas,
            rank=rank,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
        )
        self.dataset = dataset
        source = SourceRows(name="samples", num_rows=self._total, shuffle=shuffle)
        self._order = Order([source], shares=[1.0], seed=seed)
        self.agree(self.identity)

    @property
    def identity(self) -> dict[str, Any]:
        """What the order depends on besides the ranks."""
        return {**super().identity, "total_samples": self._total}

    def _locate(self, epoch: int, start: int, count: int) -> np.ndarray:
        places = np.arange(start, start + count) * self.num_replicas + self.rank
        places %= self._total
        if not self.shuffle:
            return places
        return self._order.permutation(0, epoch).forward(places)
