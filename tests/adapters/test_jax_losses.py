"""Losses in JAX: by source, of an evaluation, on a mesh of three; the same as torch's."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.adapters.making import SEQ_LEN, VOCAB, mixed_recipe, val_recipe, write_stores
from tests.adapters.tiny_jax import read_weights, segmented
from tests.adapters.tiny_model import TinyModel
from tests.adapters.tiny_model import segmented as segmented_torch

import tokenreel.torch
from tokenreel.errors import EndlessError
from tokenreel.feed.feed import Feed
from tokenreel.jax import FeedLoader, evaluate, loss_by_source
from tokenreel.torch import Tensors

FLAGS = "--xla_force_host_platform_device_count=3"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores, and the weights of a model."""
    path = tmp_path_factory.mktemp("stores")
    write_stores(path)
    weights = TinyModel(VOCAB, SEQ_LEN).state_dict()
    np.savez(path / "weights.npz", **{name: weights[name].numpy() for name in weights})
    return path


@pytest.mark.soak
def test_a_mesh_of_three_has_the_losses_of_one_device(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.adapters.jax_losses", str(folder)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XLA_FLAGS": FLAGS, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for grad_accum in (1, 2):
        one, three = found[f"1 x {grad_accum}"], found[f"3 x {grad_accum}"]
        assert three["losses"] == pytest.approx(one["losses"], rel=1e-6)
        assert three["gradients apart"] < 1e-6
        np.testing.assert_allclose(three["by_source"], one["by_source"], rtol=1e-6)
        assert three["losses"] == pytest.approx(found["1 x 1"]["losses"], rel=1e-6)
    assert found["3 x 1"]["global"] == [9, SEQ_LEN]
    assert found["3 x 1"]["shapes"] == [[[3, SEQ_LEN]] * 3, [[3]] * 3]
    assert found["3 x 1"]["given"] == [[6, SEQ_LEN], [6]]  # 4 rows of a rank, on 3 devices
    assert found["3 x 2"]["global"] == [2, 6, SEQ_LEN]
    assert found["3 x 2"]["shapes"] == [[[2, 2, SEQ_LEN]] * 3, [[2, 2]] * 3]
    alone = evaluate(partial(segmented, read_weights(folder / "weights.npz")), val_recipe(folder))
    for name in ("3 x 1", "3 x 2"):
        assert found[name]["evaluation"] == pytest.approx(alone.as_dict(), rel=1e-6)


@pytest.mark.parametrize(("size", "grad_accum"), [(8, 1), (3, 1), (50, 1), (6, 2)])
def test_an_evaluation_in_jax_is_that_in_torch(folder: Path, size: int, grad_accum: int) -> None:
    recipe = val_recipe(folder, global_batch_size=size, grad_accum=grad_accum)
    model = partial(segmented, read_weights(folder / "weights.npz"))
    found = evaluate(model, recipe)
    expected = tokenreel.torch.evaluate(
        TinyModel(VOCAB, SEQ_LEN), val_recipe(folder), forward=segmented_torch
    )
    assert found.as_dict() == pytest.approx(expected.as_dict(), rel=1e-6)
    assert found.weight == pytest.approx(expected.weight, rel=1e-9)
    assert found.steps == len(Feed(recipe))


def test_a_feed_can_be_evaluated_again_and_a_run_without_end_not_at_all(folder: Path) -> None:
    model = partial(segmented, read_weights(folder / "weights.npz"))
    feed = Feed(val_recipe(folder))
    first = evaluate(model, feed)
    feed.step = 2  # wherever it is
    assert evaluate(model, feed) == first
    with pytest.raises(EndlessError, match="a run without end has no length"):
        evaluate(model, mixed_recipe(folder))


@pytest.mark.parametrize("grad_accum", [1, 2])
def test_sums_by_source_are_those_of_torch_and_what_is_ignored_counts_nothing(
    folder: Path, grad_accum: int
) -> None:
    feed = Feed(mixed_recipe(folder, grad_accum=grad_accum))
    chance = np.random.default_rng(0)
    for rank in range(3):
        batch = next(iter(FeedLoader(Feed(feed.recipe), rank=rank, world_size=3)))
        logits = chance.normal(size=(*batch["labels"].shape, VOCAB)).astype(np.float32)
        filler = np.asarray(batch["source_ids"]) < 0
        logits[np.asarray(batch["labels"]) < 0] = np.nan  # of filler, padding, untrained tokens
        found = loss_by_source(jnp.asarray(logits), batch, num_sources=3)
        tensors = Tensors()(feed.batch(0, rank=rank, world_size=3))
        expected = tokenreel.torch.loss_by_source(torch.tensor(logits), tensors, num_sources=3)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(one), other.numpy(), rtol=1e-6)
        assert math.isclose(float(found[1].sum()), float(batch["loss_weights"].sum()), rel_tol=1e-6)
    assert filler.any() == (grad_accum == 2)  # 8 rows in 6 parts of 2


def test_sums_over_thousands_of_rows_lose_nothing_in_float32() -> None:
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 2, (4096, 128))
    logits = chance.normal(size=(*labels.shape, 2)).astype(np.float32)
    batch = {"labels": labels, "loss_weights": np.ones_like(labels, np.float32)}
    batch["source_ids"] = np.repeat([0, 2], [4000, 96])
    found = loss_by_source(jnp.asarray(logits), batch, num_sources=3)
    wide = logits.astype(np.float64)
    picked = np.take_along_axis(wide, labels[..., None], -1)[..., 0]
    rows = (np.logaddexp(wide[..., 0], wide[..., 1]) - picked).sum(-1)
    expected = [rows[:4000].sum(), 0, rows[4000:].sum()]
    np.testing.assert_allclose(np.asarray(found[0]), expected, rtol=3e-7)
    assert np.asarray(found[1]).tolist() == [4000 * 128, 0, 96 * 128]
