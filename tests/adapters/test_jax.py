"""Global arrays over devices of one process and of two, and properties 20 and 27 for JAX."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.adapters import jax_program
from tests.adapters.making import equals, mixed_recipe, val_recipe, write_stores
from tests.feed.making import recipe_of, write_store

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.jax import FeedLoader, evaluate
from tokenreel.testing import check_resume
from tokenreel.torch import FeedLoader as TorchLoader

COUNT = "--xla_force_host_platform_device_count"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_stores(tmp_path)
    return mixed_recipe(tmp_path)


def run(folder: Path, processes: int) -> list[dict[str, Any]]:
    """Run the program in so many processes and return what each printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "tests.adapters.jax_program"]
    running = [
        subprocess.Popen(
            [*program, str(process), str(processes), str(port), str(folder)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "XLA_FLAGS": f"{COUNT}={4 // processes}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]
    printed = []
    for process in running:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-4000:]
        printed.append(json.loads(output.splitlines()[-1]))
    return printed


def check_evaluation(said: dict[str, Any], folder: Path) -> None:
    """Compare the evaluation that a program printed with one on a single device."""
    alone = evaluate(jax_program.uniform, val_recipe(folder, global_batch_size=5))
    steps = len(Feed(val_recipe(folder, global_batch_size=9)))
    expected = {"loss": alone.loss, "weight": alone.weight, "steps": steps}
    assert said["evaluation"] == pytest.approx(expected, rel=1e-6)


def test_arrays_are_sharded_over_the_devices_of_one_process(tmp_path: Path) -> None:
    write_stores(tmp_path)
    said = run(tmp_path, 1)[0]
    assert said["crossing"] == "none"
    check_evaluation(said, tmp_path)


def test_two_processes_make_one_array_and_agree_before_the_first_step(tmp_path: Path) -> None:
    write_stores(tmp_path)
    one, other = run(tmp_path, 2)
    assert one["evaluation"] == other["evaluation"]
    check_evaluation(one, tmp_path)
    for name, pattern in {
        "seed": r"MismatchError: .*recipe.seed on rank 1 \(expected 11, got 12\).*",
        "missing": r"MismatchError: not every rank can open the stores; .*rank 1 .*nowhere/web.*",
        "steps": r"MismatchError: .*number of steps on rank 1 \(expected 10, got 9\).*",
    }.items():
        assert one[name] == other[name]
        assert re.fullmatch(pattern, one[name]), one[name]
    assert one["crossing"] == (
        "the devices of this process hold no contiguous part of the rows (expected one of equal "
        "parts of 8 rows, got 0:2, 4:6); "
        "order the devices of the mesh by process along the axis of the rows"
    )


class Loading:
    """A loader whose batches are plain arrays."""

    def __init__(self, loader: FeedLoader) -> None:
        self.loader = loader
        self.state_dict, self.load_state_dict = loader.state_dict, loader.load_state_dict

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for batch in self.loader:
            yield {name: np.array(array) for name, array in batch.items()}


def test_a_loader_resumes_at_every_step(recipe: Recipe) -> None:
    short = replace(recipe, steps=7)
    check_resume(lambda: Loading(FeedLoader(short)), steps=7)
    assert len(FeedLoader(short)) == 7


def test_weights_changed_on_the_way_hold_from_the_next_batch_on(recipe: Recipe) -> None:
    feed, loader = Feed(recipe), FeedLoader(recipe)
    stream = iter(loader)
    for step in range(4):
        assert equals(next(stream), feed.batch(step))
    feed.step = 4
    for changed in (feed, loader.feed):
        changed.change_weights({"web": 1, "chat": 20, "notes": 1})
    for step in range(4, 9):
        assert equals(next(stream), feed.batch(step))
    assert [change["step"] for change in loader.feed.changes] == [4]


@pytest.mark.parametrize("grad_accum", [1, 2])
def test_jax_torch_and_numpy_batches_are_equal(recipe: Recipe, grad_accum: int) -> None:
    changed = replace(recipe, grad_accum=grad_accum)
    feed = Feed(changed)
    for rank, world_size in ((0, 1), (1, 2)):
        given: dict[str, Any] = {"rank": rank, "world_size": world_size}
        pairs = zip(FeedLoader(changed, **given), TorchLoader(changed, **given), strict=False)
        for step, (one, other) in enumerate(islice(pairs, 6)):
            batch = feed.batch(step, **given)
            assert equals(one, batch) and equals(other, batch)
    assert one["input_ids"].dtype == np.int32


def test_common_fields_survive_being_donated(tmp_path: Path) -> None:
    write_store(tmp_path / "a", [16 * 40 + 1])
    recipe = recipe_of(Source(name="a", path=tmp_path / "a"), seq_len=16)
    feed, stream = Feed(recipe), iter(FeedLoader(recipe))
    for step in range(4):
        batch = next(stream)
        assert equals(batch, feed.batch(step))
        for array in batch.values():
            array.delete()


def test_bad_arguments_are_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rank and world_size are given together"):
        FeedLoader(recipe, rank=0)
    with pytest.raises(ConfigError, match="bad rank"):
        iter(FeedLoader(recipe, rank=3, world_size=3))
    with pytest.raises(ConfigError, match="unknown fields of a batch"):
        FeedLoader(recipe, fields=["tokens"])
    write_store(tmp_path / "huge", [40], vocab_size=2**31 + 2)
    huge = recipe_of(Source(name="huge", path=tmp_path / "huge"))
    with pytest.raises(ConfigError) as caught:
        FeedLoader(huge)
    assert str(caught.value).endswith(
        "token ids do not fit into int32 (expected at most 2,147,483,647, got 2,147,483,649); "
        'switch 64-bit types on: jax.config.update("jax_enable_x64", True)'
    )
    with jax.enable_x64(True):
        assert next(iter(FeedLoader(huge)))["input_ids"].dtype == np.int64
