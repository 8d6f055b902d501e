"""Three ranks under torch.distributed of which one is lost before or while feeds are compared.

    python -m tests.faults.lost_rank_program FOLDER

torch is imported once, then the ranks of each case are forked. Each rank that stays writes down
the error that it raised, to FOLDER/<case>-<rank>.json.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from tests.feed.making import recipe_of

from tokenreel import Feed, Source
from tokenreel.errors import TokenreelError
from tokenreel.torch import ranks

NUM_RANKS = 3
SECONDS = 6.0  # the timeout of the process group
LOST = {  # by case: which rank is lost
    "ended": 1,
    "never came": 2,
    "stopped": 1,
    "rank 0": 0,
    "in the exchange": 1,
    "in a group": 2,
}


def lose(case: str, rank: int) -> None:
    """Be lost in the way of the case, if this is the rank for it."""
    if rank != LOST[case]:
        return
    if case == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(1)


def run(case: str, rank: int, address: str, folder: Path) -> None:
    """Be one rank: compare once with all of them, then again without the one that is lost."""
    dist.init_process_group(
        "gloo",
        init_method=address,
        rank=rank,
        world_size=NUM_RANKS,
        timeout=timedelta(seconds=SECONDS),
    )
    feed = Feed(recipe_of(Source(name="s", path=folder / "s"), global_batch_size=6))
    group = dist.new_group([1, 2]) if case == "in a group" else None
    if group is not None and rank == 0:  # not of the group, but it keeps the store
        while not (folder / f"{case}-1.json").exists():
            time.sleep(0.05)
        os._exit(0)
    if case != "never came":
        ranks.agree(feed, group=group)
    if case == "in the exchange":
        dist.barrier()
        if rank == LOST[case]:
            ranks.call_roll(group)  # it comes, and is gone before it has said anything
            os._exit(1)
    else:
        lose(case, rank)
    error = "none"
    try:
        ranks.agree(feed, group=group)
    except TokenreelError as raised:
        error = f"{type(raised).__name__}: {raised}"
    (folder / f"{case}-{rank}.json").write_text(json.dumps(error))
    while not all((folder / f"{case}-{r}.json").exists() for r in staying(case)):
        time.sleep(0.05)  # or rank 0 would take the store with it
    os._exit(0)


def staying(case: str) -> list[int]:
    """Return the ranks that write down what they raised."""
    everyone = range(1 if case == "in a group" else 0, NUM_RANKS)
    return [rank for rank in everyone if rank != LOST[case]]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return int(listening.getsockname()[1])


def main(folder: Path) -> None:
    """Fork the ranks of each case, all cases at once, and wait for those that stay."""
    fork = multiprocessing.get_context("fork")
    started = {
        case: [
            fork.Process(target=run, args=(case, rank, address, folder))
            for address in [f"tcp://localhost:{free_port()}"]
            for rank in range(NUM_RANKS)
        ]
        for case in LOST
    }
    for processes in started.values():
        for process in processes:
            process.start()
    for case, processes in started.items():
        for rank, process in enumerate(processes):
            if rank != LOST[case]:
                process.join(60)
        for process in processes:
            process.kill()
            process.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
