"""Which rows of a step a process reads, and whether all processes see the same run.

The rows follow from the sharding: processes whose devices hold the same rows (model
parallelism) are one rank to the data. Asking all processes is two all-gathers.
"""

from __future__ import annotations

import json
from os import PathLike

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Sharding

from tokenreel.errors import ConfigError, TokenreelError
from tokenreel.feed.agreement import Claim, check_claims, claim_of, failed_claim
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe


def ranks_of(sharding: Sharding, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return (rank, world): which part of the rows of [..., B, T] is on this process's devices."""
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
    return min(starts) // size, num_rows // size


def open_together(feed: Feed | Recipe | str | PathLike[str]) -> Feed:
    """Open a feed on all processes or on none."""
    here, count = jax.process_index(), jax.process_count()
    try:
        opened = feed if isinstance(feed, Feed) else Feed(feed)
    except TokenreelError as error:
        _compare(failed_claim(error, rank=here, world=count))
        raise
    _compare(claim_of(opened, rank=here, world=count))
    return opened


def agree(feed: Feed, *, rank: int, world: int) -> None:
    """Raise on every process unless all would feed from the same run, each its part."""
    _compare(claim_of(feed, rank=rank, world=world))


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
