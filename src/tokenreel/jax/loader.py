"""The loader for a JAX training loop: sharded arrays of the global step, with a state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from os import PathLike
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from tokenreel.display import count_of, named, never_raising
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.fields import FIELDS, default_fields, extra_of
from tokenreel.feed.group_fields import has_groups
from tokenreel.feed.recipe import Recipe
from tokenreel.jax.arrays import ArrayBatch, Arrays, check_ids_fit
from tokenreel.jax.ranks import agree, held_by, num_parts_of, open_together


class FeedLoader:
    """Batches from the current step on, as dicts of arrays of the whole global step.

    `sharding` is for [B, T] or, with accumulation, [A, B, T]; by default the rows are shared
    out over all devices of all processes. Any number of devices is served: where it does not
    divide the rows, B is the next multiple, and the rows that fill it up are padding of weight
    0. source_ids have one axis less, [B] or [A, B]. With accumulation a microbatch is a part of
    every process's rows: its rows differ with the number of processes, those of a step do not.

    With `rank` and `world_size` given, arrays are of that rank's rows alone, on this process's
    devices: for programs that share out batches themselves.
    """

    def __init__(
        self,
        feed: Feed | Recipe | str | PathLike[str],
        *,
        sharding: Sharding | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int = 2,
        fields: Sequence[str] = FIELDS,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ConfigError("rank and world_size are given together or not at all")
        self.feed = open_together(feed)
        check_ids_fit(self.feed)
        self.prefetch = prefetch
        if rank is not None and world_size is not None:
            self.rank, self.world_size, self._devices = rank, world_size, 1
            if sharding is not None:
                self._devices = num_parts_of(sharding, self.feed.recipe)
            place = partial(_put, sharding)
        else:
            over = sharding or _over_all_devices(2 if self.feed.recipe.grad_accum == 1 else 3)
            held = held_by(over, self.feed.recipe)
            self.rank, self.world_size, self._devices = held.rank, held.world_size, held.devices
            place = partial(_place, over, held.shape)
        named = default_fields(fields, has_groups=has_groups(self.feed.plans))
        self._arrays = Arrays(place, named)

    def __len__(self) -> int:
        """How many steps the run has; EndlessError if it has no end."""
        return len(self.feed)

    def __iter__(self) -> Iterator[ArrayBatch]:
        agree(self.feed, rank=self.rank, world_size=self.world_size)
        stream = self.feed.stream(
            rank=self.rank,
            world_size=self.world_size,
            devices=self._devices,
            prefetch=self.prefetch,
            extra=extra_of(self._arrays.fields),
        )
        return map(self._arrays, stream)

    def state_dict(self) -> dict[str, Any]:
        """Return where the feed is: a step, and what it must fit to be loaded."""
        return self.feed.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says; a state of something else raises MismatchError."""
        self.feed.load_state_dict(state)

    @never_raising
    def __repr__(self) -> str:
        facts = [f"rank {self.rank} of {self.world_size}", count_of(self._devices, "device")]
        return named("FeedLoader", [*facts, f"prefetch {self.prefetch}"], [repr(self.feed)])


def _place(over: Sharding, shape: tuple[int, ...], array: np.ndarray) -> jax.Array:
    """Return a global array of this shape, less its last axis where the rows have none."""
    over, shape = _cut(over, array.ndim), shape[: array.ndim]
    return jax.make_array_from_process_local_data(over, array, global_shape=shape)


def _put(over: Sharding | None, array: np.ndarray) -> jax.Array:
    """Return an array of this process alone."""
    return jax.device_put(array, None if over is None else _cut(over, array.ndim))


def _cut(over: Sharding, num_axes: int) -> Sharding:
    """Return the sharding of the first so many axes: source_ids have one less than the rows."""
    if isinstance(over, NamedSharding) and len(over.spec) > num_axes:
        return NamedSharding(over.mesh, PartitionSpec(*over.spec[:num_axes]))
    return over


def _over_all_devices(num_axes: int) -> NamedSharding:
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    spec = PartitionSpec(*(None,) * (num_axes - 2), "data", None)
    return NamedSharding(Mesh(np.array(devices), ("data",)), spec)
