"""Fault 28 under torch.distributed: real processes, one killed, another number goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
from tests.adapters import rank_program
from tests.adapters.making import FIELDS, mixed_recipe, write_stores
from tests.adapters.ranks import Ranks

from tokenreel.feed.feed import Feed


def waiting_rank(folder: Path) -> int:
    """Return the process id of the rank that waits, when it does."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (folder / "waiting").exists() and (text := (folder / "waiting").read_text()):
            return int(text)
        time.sleep(0.02)
    raise TimeoutError("no rank waits")


def check_step(feed: Feed, folder: Path, step: int) -> int:
    """Compare what all ranks got with the global batch, and return how many they were."""
    world_size = int((folder / f"world_size-{step}").read_text())
    parts = [np.load(folder / f"batch-{step}-{rank}.npz") for rank in range(world_size)]
    expected = feed.batch(step)
    for name in FIELDS:
        joined = np.concatenate([part[name] for part in parts])
        assert np.array_equal(joined, getattr(expected, name)), (step, name)
    assert all(np.isclose(part["seen"], feed.weight_sum(step)) for part in parts)
    return world_size


def test_a_killed_run_goes_on_with_other_processes_and_the_same_global_batches(
    tmp_path: Path, ranks: Ranks
) -> None:
    write_stores(tmp_path)
    ranks.launch("train", 2, tmp_path)
    os.kill(waiting_rank(tmp_path), signal.SIGKILL)
    codes = ranks.finish()
    assert codes[1] == -signal.SIGKILL
    assert codes[0] == 1
    assert not (tmp_path / f"world_size-{rank_program.WAIT_AT}").exists()
    ranks.launch("train", 4, tmp_path)
    assert ranks.finish() == [0, 0, 0, 0]
    feed = Feed(mixed_recipe(tmp_path))
    worlds = [check_step(feed, tmp_path, step) for step in range(rank_program.STEPS)]
    assert worlds == [2] * 5 + [4] * 5
