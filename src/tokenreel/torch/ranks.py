"""Which rank of how many this process is, and whether all ranks see the same run.

Asking all ranks is a roll call (roll_call.py) and one all_gather of some hundred bytes each. It
is asked where a feed is opened while torch.distributed is running, and before the first batch of
each iteration.
"""

from __future__ import annotations

import os
from os import PathLike

import torch.distributed as dist

from tokenreel.errors import ConfigError, TokenreelError
from tokenreel.feed.agreement import Claim, check_claims, claim_of, failed_claim, lost_exchange
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.torch.roll_call import call_roll, find_ended

Group = dist.ProcessGroup | None  # None: all processes


def ranks_of(rank: int | None, world_size: int | None, *, group: Group = None) -> tuple[int, int]:
    """Return (rank, world_size): as given, else those of torch.distributed, else (0, 1)."""
    if (rank is None) != (world_size is None):
        raise ConfigError("rank and world_size are given together or not at all")
    if rank is not None and world_size is not None:
        if not 0 <= rank < world_size:
            raise ConfigError("bad rank", expected=f"0 to {world_size - 1}", actual=rank)
        return rank, world_size
    if running():
        return dist.get_rank(group), dist.get_world_size(group)
    launched = os.environ.get("WORLD_SIZE", "1")
    if launched != "1":  # every process would take itself for the only one
        raise ConfigError(
            "this is one of several processes, but torch.distributed is not running",
            expected="WORLD_SIZE=1",
            actual=f"WORLD_SIZE={launched}",
            remedy="call init_process_group first, or give rank and world_size",
        )
    return 0, 1


def running() -> bool:
    """Is torch.distributed initialised?"""
    return dist.is_available() and dist.is_initialized()


def open_together(
    feed: Feed | Recipe | str | PathLike[str],
    *,
    rank: int | None = None,
    world_size: int | None = None,
    group: Group = None,
) -> Feed:
    """Open a feed on all ranks or on none: if one cannot, or sees another run, all raise."""
    try:
        opened = feed if isinstance(feed, Feed) else Feed(feed)
    except TokenreelError as error:
        if running():
            here, size = ranks_of(rank, world_size, group=group)
            compare(failed_claim(error, rank=here, world_size=size), group)
        raise
    if running():
        agree(opened, rank=rank, world_size=world_size, group=group)
    return opened


def agree(
    feed: Feed, *, rank: int | None = None, world_size: int | None = None, group: Group = None
) -> tuple[int, int]:
    """Return (rank, world_size) if all ranks would feed from the same; else all raise."""
    here, size = ranks_of(rank, world_size, group=group)
    if running():
        compare(claim_of(feed, rank=here, world_size=size), group)
    return here, size


def compare(said: Claim, group: Group = None) -> None:
    """Raise on every rank unless the claims of all ranks agree; all of a group must ask.

    Where a rank does not come, or is lost, the others raise WorkerError.
    """
    if said["world_size"] == 1:  # a process that reads for itself alone asks nobody
        return
    call_roll(group)
    claims: list[Claim] = [{} for _ in range(dist.get_world_size(group))]
    try:
        dist.all_gather_object(claims, said, group=group)
    except RuntimeError as error:  # of any backend: a connection was closed, the time is up
        raise lost_exchange(str(error), ended=find_ended(group)) from error
    check_claims(claims)
