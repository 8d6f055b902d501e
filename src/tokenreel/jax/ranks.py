"""Which rows of a step a process reads, and whether all processes see the same run.

The rows follow from the sharding: processes whose devices hold the same rows (model
parallelism) are one rank to the data. Where the rows of a step do not divide over the
devices, each has as many as the most of them, and what is missing is padding. Asking all
processes is two all-gathers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Sharding

from tokenreel.errors import ConfigError, TokenreelError
from tokenreel.feed.agreement import Claim, check_claims, claim_of, failed_claim
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What this process holds of a global array: the part of its rank, in `devices` equal parts.

    shape: of the global array, [B, T] or [A, B, T], with B filled up to what divides.
    """

    rank: int
    world_size: int
    devices: int
    shape: tuple[int, ...]


def held_by(sharding: Sharding, recipe: Recipe) -> Held:
    """Return which part of the rows of a step is on this process's devices."""
    lead = (recipe.grad_accum,) if recipe.grad_accum > 1 else ()
    num_parts = num_parts_of(sharding, recipe)
    width = -(-recipe.global_batch_size // (recipe.grad_accum * num_parts))
    shape = (*lead, num_parts * width, recipe.seq_len)
    num_rows = shape[-2]
    held = {
        index[-2].indices(num_rows)[:2]
        for index in sharding.addressable_devices_indices_map(shape).values()
        if index is not None
    }
    starts, stops = [start for start, _ in held], [stop for _, stop in held]
    size = max(stops) - min(starts)
    covered = sum(stop - start for start, stop in held)
    if covered != size or num_rows % size or min(starts) % size:
        raise ConfigError(
            "the devices of this process hold no contiguous part of the rows",
            expected=f"one of equal parts of {num_rows:,} rows",
            actual=", ".join(f"{start}:{stop}" for start, stop in sorted(held)),
            remedy="order the devices of the mesh by process along the axis of the rows",
        )
    rank, world_size = min(starts) // size, num_rows // size
    return Held(rank=rank, world_size=world_size, devices=size // width, shape=shape)


def num_parts_of(sharding: Sharding, recipe: Recipe) -> int:
    """Return into how many parts a sharding cuts the rows of a step."""
    lead = (recipe.grad_accum,) if recipe.grad_accum > 1 else ()
    num_devices = len(sharding.device_set)
    # As many rows as devices: each part of them shows how many parts there are.
    probe = sharding.shard_shape((*lead, num_devices, recipe.seq_len))
    return num_devices // probe[-2]


def open_together(feed: Feed | Recipe | str | PathLike[str]) -> Feed:
    """Open a feed on all processes or on none."""
    here, count = jax.process_index(), jax.process_count()
    try:
        opened = feed if isinstance(feed, Feed) else Feed(feed)
    except TokenreelError as error:
        _compare(failed_claim(error, rank=here, world_size=count))
        raise
    _compare(claim_of(opened, rank=here, world_size=count))
    return opened


def agree(feed: Feed, *, rank: int, world_size: int) -> None:
    """Raise on every process unless all would feed from the same run, each its part."""
    _compare(claim_of(feed, rank=rank, world_size=world_size))


def _compare(claim: Claim) -> None:
    if jax.process_count() == 1:
        return
    text = np.frombuffer(json.dumps(claim).encode(), np.uint8)
    lengths = process_allgather(np.int32(len(text)))
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: len(text)] = text
    rows = np.asarray(process_allgather(padded))
    check_claims(
        [json.loads(bytes(row[:length])) for row, length in zip(rows, lengths, strict=True)]
    )
