"""The ranks of a run under torch.distributed.

    python -m tests.adapters.rank_program TASK WORLD FOLDER

torch is imported once, then every rank is a process forked from there. `train` takes
batches, keeps them as files, and saves the state after each step; before step `WAIT_AT`
rank 1 waits to be killed, if asked to; four ranks try themselves in groups first.
`disagree` tries runs whose ranks do not see the same, and writes down the error that each
raised. Prints the exit codes of all ranks.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from tests.adapters.making import equals, mixed_recipe

from tokenreel.errors import TokenreelError
from tokenreel.feed.feed import Feed
from tokenreel.torch import FeedLoader

WAIT_AT = 5
STEPS = 10


def train(rank: int, folder: Path) -> None:
    """Take batches until the run ends or a rank is gone."""
    if dist.get_world_size() == 4:
        share_in_groups(rank, folder)
    loader = FeedLoader(mixed_recipe(folder, steps=STEPS))
    saved = folder / "state.json"
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))
    for batch in loader:
        step = loader.feed.step - 1
        if step == WAIT_AT and rank == 1 and "WAIT" in os.environ:
            (folder / "waiting").write_text(str(os.getpid()))
            time.sleep(60)
        seen = batch["loss_weights"].sum()
        dist.all_reduce(seen)  # what the gradients would do: it fails where a rank is gone
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in batch.items()}
        np.savez(folder / f"batch-{step}-{rank}.npz", seen=seen.numpy(), **arrays)
        dist.barrier()
        if rank == 0:
            saved.with_suffix(".part").write_text(json.dumps(loader.state_dict()))
            saved.with_suffix(".part").rename(saved)
            (folder / f"world-{step}").write_text(str(dist.get_world_size()))


def share_in_groups(rank: int, folder: Path) -> None:
    """Take part as one of two ranks: of a group of its own, or of all, with another process."""
    recipe = mixed_recipe(folder)
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    inside = next(iter(FeedLoader(recipe, group=groups[rank // 2])))
    beside = next(iter(FeedLoader(recipe, rank=rank // 2, world=2)))
    alone = next(iter(FeedLoader(recipe, rank=0, world=1)))
    feed = Feed(recipe)
    assert equals(inside, feed.batch(0, rank=rank % 2, world=2))
    assert equals(beside, feed.batch(0, rank=rank // 2, world=2))
    assert equals(alone, feed.batch(0))


def disagree(rank: int, folder: Path) -> None:
    """Let the last rank see another run, in several ways."""
    same = mixed_recipe(folder)
    other = rank == dist.get_world_size() - 1
    ahead = Feed(same)
    ahead.step = 4 if other else 0
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "same": (same, {}),
        "seed": (replace(same, seed=12) if other else same, {}),
        "store": (mixed_recipe(folder / "changed") if other else same, {}),
        "missing": (mixed_recipe(folder / "nowhere") if other else same, {}),
        "steps": (replace(same, steps=9 if other else 10), {}),
        "state": (ahead, {}),
        "ranks": (same, {"rank": 0, "world": 2}),
        "divide": (replace(same, batch_size=9), {}),
    }
    errors = {}
    for name, (feed, options) in cases.items():
        try:
            next(iter(FeedLoader(feed, **options)))
            errors[name] = "none"
        except TokenreelError as error:
            errors[name] = f"{type(error).__name__}: {error}"
    (folder / f"errors-{rank}.json").write_text(json.dumps(errors))


def run(task: str, rank: int, world: int, folder: Path) -> None:
    """Be one rank."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/group-{task}-{world}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=40),
    )
    {"train": train, "disagree": disagree}[task](rank, folder)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Fork the ranks and wait for all of them."""
    task, world, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    ranks = []
    for rank in range(world):
        process = multiprocessing.get_context("fork").Process(
            target=run, args=(task, rank, world, folder)
        )
        process.start()
        ranks.append(process)
    for process in ranks:
        process.join()
    print(json.dumps([process.exitcode for process in ranks]))


if __name__ == "__main__":
    main()
