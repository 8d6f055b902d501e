"""The ranks of a run under torch.distributed.

    python -m tests.adapters.rank_program        reads lines: ["TASK", WORLD, "FOLDER"]

torch is imported once, then every rank is a process forked from there. `train` takes
batches, keeps them as files, and saves the state after each step; of two ranks, rank 1
waits before step `WAIT_AT` to be killed; four ranks try themselves in groups first.
`disagree` tries runs whose ranks do not see the same, and writes down the error that each
raised. `losses` computes losses and gradients of steps and of an evaluation. `trainer` lets
the Trainer of transformers do the training. Prints the exit codes of all ranks of each run.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from tests.adapters.making import equals, mixed_recipe
from tests.adapters.step_losses import figures

from tokenreel.dropin import (
    DataConfig,
    DistributedSampler,
    MixtureSampler,
    StatefulDataLoader,
    make_pipeline,
)
from tokenreel.errors import TokenreelError
from tokenreel.feed.feed import Feed
from tokenreel.torch import FeedLoader

WAIT_AT = 5
STEPS = 10
MOST_SECONDS = 100


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
        if step == WAIT_AT and rank == 1 and dist.get_world_size() == 2:
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
            (folder / f"world_size-{step}").write_text(str(dist.get_world_size()))


def share_in_groups(rank: int, folder: Path) -> None:
    """Take part as one of two ranks: of a group of its own, or of all, with another process."""
    recipe = mixed_recipe(folder)
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    inside = next(iter(FeedLoader(recipe, group=groups[rank // 2])))
    beside = next(iter(FeedLoader(recipe, rank=rank // 2, world_size=2)))
    alone = next(iter(FeedLoader(recipe, rank=0, world_size=1)))
    feed = Feed(recipe)
    assert equals(inside, feed.batch(0, rank=rank % 2, world_size=2))
    assert equals(beside, feed.batch(0, rank=rank // 2, world_size=2))
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
        "ranks": (same, {"rank": 0, "world_size": 2}),
        "uneven": (replace(same, global_batch_size=9), {}),
    }
    errors = {
        name: error_of(partial(FeedLoader, feed, **options))
        for name, (feed, options) in cases.items()
    }
    errors |= disagree_in_files(folder, other)
    (folder / f"errors-{rank}.json").write_text(json.dumps(errors))


def disagree_in_files(folder: Path, other: bool) -> dict[str, str]:
    """Let a rank see other files than the rest, through contract 003's names."""

    def made(name: str, *, seed: int = 0, taken: int = 0) -> StatefulDataLoader:
        settings = DataConfig(dataset_path=str(folder / name))
        loader = make_pipeline(settings, seq_len=3, batch_size=2, seed=seed).loader
        loader.load_state_dict({**loader.state_dict(), "batches_yielded": taken, "sampler": {}})
        return loader

    def mixed(share: float) -> MixtureSampler:
        return MixtureSampler([0, 10, 20], [share, 1.0])

    def mine() -> DistributedSampler:
        dataset = range(9 if other else 10)
        return DistributedSampler(dataset, 2, int(other))  # ranks that are given ask nobody

    return {
        "same files": error_of(lambda: made("files")),
        "other tokens": error_of(lambda: made("files-changed" if other else "files")),
        "no files": error_of(lambda: made("nowhere" if other else "files")),
        "sampler seed": error_of(lambda: made("files", seed=int(other))),
        "sampler shares": error_of(lambda: mixed(2.0 if other else 1.0)),
        "loader state": error_of(lambda: made("files", taken=int(other))),
        "ranks given": error_of(mine),
    }


def error_of(make: Callable[[], Any]) -> str:
    """Return the error of making something and taking its first item, or "none"."""
    try:
        next(iter(make()))
    except TokenreelError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def add_up_losses(rank: int, folder: Path) -> None:
    """Keep the figures of all ranks together: what each has, added up."""

    def add(values: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(values)
        return values

    np.savez(folder / f"losses-{rank}.npz", **figures(folder, add))  # type: ignore[arg-type]


def train_by_trainer(rank: int, folder: Path) -> None:
    """Let the Trainer train, and keep what the model was given."""
    from tests.adapters.test_trainer import rows_recipe
    from tests.adapters.trainer_run import train

    options: dict[str, Any] = {"max_steps": 9, "save_strategy": "no"}
    recipe = rows_recipe(folder)
    model = train(recipe, folder / "run", gradient_accumulation_steps=1, **options)
    given = [batch["input_ids"].numpy() for batch in model.given]
    np.save(folder / f"given-{rank}.npy", np.stack(given))


TASKS = {
    "train": train,
    "disagree": disagree,
    "losses": add_up_losses,
    "trainer": train_by_trainer,
}


def run(task: str, rank: int, world_size: int, folder: Path) -> None:
    """Be one rank."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
    os.environ["MASTER_ADDR"] = "localhost"  # nobody calls there: the group is made first
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/group-{task}-{world_size}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=40),
    )
    TASKS[task](rank, folder)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Fork the ranks of each run that is asked for, and wait for all of them."""
    gc.freeze()  # or it would be looked through again and again, and taken down at the end
    fork = multiprocessing.get_context("fork")
    for line in sys.stdin:
        task, world_size, folder = json.loads(line)
        if task == "trainer":
            import tests.adapters.trainer_run  # noqa: F401 - once, before there are several
        processes = [
            fork.Process(target=run, args=(task, rank, world_size, Path(folder)))
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(MOST_SECONDS)
            process.kill()  # only what hangs is still there
            process.join()
        print("exit codes", json.dumps([process.exitcode for process in processes]), flush=True)


if __name__ == "__main__":
    main()
