"""Are all ranks here? Asked in the store of a process group, before the ranks exchange anything.

A collective of torch.distributed that lacks a rank says at best that a connection was closed.
Here each rank leaves a mark, and the last one to come lets all go on:

    <round>/<rank>     this rank has come
    <round>/count      how many have
    <round>/all        all have: what everybody waits for
    process/<rank>     which process it is, so that others on its machine see that it has ended

A rank that has ended is noticed within a second where it was seen before and runs on this
machine, else as one that is stuck: when the time is up that the process group was given. Costs
five requests to the store for each rank; nothing is sent between ranks.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from tokenreel.feed.agreement import lost_ranks, lost_store

PREFIX = "tokenreel/roll_call"
LOOK_SECONDS = 0.5
PAUSE_SECONDS = 0.005


def call_roll(group: dist.ProcessGroup | None) -> None:
    """Return when all ranks of a group have come; WorkerError names those that have not."""
    store = _store_of(group)
    if store is None:
        return
    try:
        _call_roll(store, group)
    except dist.DistNetworkError as error:
        raise lost_store(str(error)) from error


def find_ended(group: dist.ProcessGroup | None) -> list[int]:
    """Return the ranks whose processes are known to have ended."""
    store = _store_of(group)
    if store is None:
        return []
    with suppress(dist.DistError):
        everyone = range(dist.get_world_size(group))
        return [_global(group, rank) for rank in everyone if _has_ended(store, rank)]
    return []


def _call_roll(store: dist.Store, group: dist.ProcessGroup | None) -> None:
    here, size = dist.get_rank(group), dist.get_world_size(group)
    number = store.add(f"{PREFIX}/rounds/{here}", 1)
    if number == 1:
        store.set(f"{PREFIX}/process/{here}", json.dumps(_this_process()))
    store.set(f"{PREFIX}/{number}/{here}", "here")
    if store.add(f"{PREFIX}/{number}/count", 1) == size:
        store.set(f"{PREFIX}/{number}/all", "here")
    _forget(store, number - 2, here)
    begin, seconds = time.monotonic(), _timeout(store).total_seconds()
    while not _is_there(store, f"{PREFIX}/{number}/all"):
        missing = [r for r in range(size) if not store.check([f"{PREFIX}/{number}/{r}"])]
        ended = [rank for rank in missing if _has_ended(store, rank)]
        if ended:
            raise lost_ranks([_global(group, rank) for rank in ended], seconds=None)
        if missing and time.monotonic() - begin > seconds:
            raise lost_ranks([_global(group, rank) for rank in missing], seconds=seconds)


def _timeout(store: dist.Store) -> timedelta:
    """Return the time that the process group was given; a store has it, its type stubs do not."""
    given: timedelta = getattr(store, "timeout", dist.default_pg_timeout)
    return given


def _is_there(store: dist.Store, key: str) -> bool:
    """Wait a moment for a key; a store that waits itself would print a warning each time."""
    end = time.monotonic() + LOOK_SECONDS
    while not store.check([key]):
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def _forget(store: dist.Store, number: int, here: int) -> None:
    """Remove a round that everybody has left: who is here has seen all ranks in the next one."""
    marks = [str(here), "count", "all"] if here == 0 else [str(here)]
    for mark in marks if number > 0 else []:
        with suppress(RuntimeError):  # not every kind of store can
            store.delete_key(f"{PREFIX}/{number}/{mark}")


def _store_of(group: dist.ProcessGroup | None) -> dist.Store | None:
    """Return the store of a group; None where this torch does not show it."""
    from torch.distributed import distributed_c10d

    try:
        known = group or distributed_c10d._get_default_group()
        store: dist.Store = distributed_c10d._get_process_group_store(known)
    except (AttributeError, KeyError, TypeError):
        return None
    return store


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)


def _this_process() -> dict[str, object]:
    """Say which process this is, in words that mean the same to all processes that see it."""
    return {"machine": _machine(), "pid": os.getpid(), "started": _started(os.getpid())}


def _has_ended(store: dist.Store, rank: int) -> bool:
    """Tell whether a rank that was here once is a process of this machine that has ended."""
    key = f"{PREFIX}/process/{rank}"
    if not store.check([key]):
        return False
    process = json.loads(store.get(key))
    if process["machine"] is None or process["machine"] != _machine():
        return False
    return _started(process["pid"]) != process["started"]


def _machine() -> str | None:
    """Return a name for the processes that see each other by number; None: not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """Return when a process was started; None: it has ended. A number is used again some day."""
    try:
        # The name of the program, in brackets, may hold anything; then come state, …, start.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
