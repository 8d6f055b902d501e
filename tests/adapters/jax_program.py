r"""One process of a JAX run on CPU devices.

    XLA_FLAGS=--xla_force_host_platform_device_count=2 \
    python -m tests.adapters.jax_program PROCESS PROCESSES PORT FOLDER

Checks what the loader gives on four devices of one process, or on two of each of two, and
prints what the processes said when they did not see the same run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.adapters.making import FIELDS, SEQ_LEN, VOCAB, mixed_recipe, val_recipe

from tokenreel.errors import TokenreelError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.jax import FeedLoader, evaluate


def check(recipe: Recipe, spec: PartitionSpec | None, mesh: Mesh) -> None:
    """Compare each shard on this process's devices with the rows of the global batch."""
    sharding = None if spec is None else NamedSharding(mesh, spec)
    loader, feed = FeedLoader(recipe, sharding=sharding), Feed(recipe)
    parts = [
        [feed.batch(s, rank=r, world_size=loader.world_size) for s in range(4)]
        for r in range(loader.world_size)
    ]
    for step, batch in enumerate(islice(loader, 4)):
        for name in FIELDS:
            axis = int(recipe.grad_accum > 1)  # source_ids have no axis of tokens
            whole = np.concatenate([getattr(part[step], name) for part in parts], axis=axis)
            array = batch[name]
            assert array.shape == whole.shape
            for shard in array.addressable_shards:
                assert np.array_equal(shard.data, whole[shard.index]), (step, name)
    assert loader.state_dict()["step"] == 4
    total = jax.jit(lambda weights: weights.sum())(batch["loss_weights"])
    assert np.isclose(float(total), feed.weight_sum(3))  # a sum over all processes


def check_uneven(recipe: Recipe) -> None:
    """Compare the rows on each of four devices with its part of the nine of a step."""
    loader, feed = FeedLoader(recipe), Feed(recipe)
    for step, batch in enumerate(islice(loader, 3)):
        whole = feed.batch(step)
        assert batch["input_ids"].shape == (12, SEQ_LEN)
        for name in FIELDS:
            for shard in batch[name].addressable_shards:
                part = (shard.index[0].start or 0) // 3
                rows = getattr(whole, name)[part * 9 // 4 : (part + 1) * 9 // 4]
                assert np.array_equal(shard.data[: len(rows)], rows), (step, name)
                filler = {"labels": -100, "source_ids": -1}.get(name, 0)
                assert (np.asarray(shard.data[len(rows) :]) == filler).all()


def uniform(batch: Mapping[str, jax.Array]) -> jax.Array:
    """Return logits by which every token is as likely as another, but for its row's source."""
    scale = batch["source_ids"][..., None, None].astype(float)
    return scale * jax.nn.one_hot(batch["input_ids"] % 5, VOCAB)


def errors_of(recipe: Recipe, folder: Path) -> dict[str, str]:
    """Return what each run raised that the last process sees differently."""
    other = jax.process_index() == jax.process_count() - 1
    cases: dict[str, Any] = {
        "seed": replace(recipe, seed=12) if other else recipe,
        "missing": mixed_recipe(folder / "nowhere") if other else recipe,
        "steps": replace(recipe, steps=9 if other else 10),
    }
    errors = {}
    for name, case in cases.items():
        try:
            next(iter(FeedLoader(case)))
            errors[name] = "none"
        except TokenreelError as error:
            errors[name] = f"{type(error).__name__}: {error}"
    return errors


def main() -> None:
    """Run all checks of this process."""
    process, processes, port = map(int, sys.argv[1:4])
    if processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
    folder = Path(sys.argv[4])
    recipe = mixed_recipe(folder)
    line = Mesh(np.array(jax.devices()), ("data",))
    square = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
    check(recipe, None, line)
    check(recipe, PartitionSpec("data"), square)
    check(recipe, PartitionSpec("data", "model"), square)  # sequences cut too
    check(recipe, PartitionSpec("model"), square)  # processes share rows
    check(recipe, PartitionSpec(), line)  # every device has all
    check(replace(recipe, grad_accum=2), None, line)
    check_uneven(replace(recipe, global_batch_size=9))
    crossed = Mesh(np.array(jax.devices())[[0, 2, 1, 3]], ("data",))
    try:
        FeedLoader(recipe, sharding=NamedSharding(crossed, PartitionSpec("data")))
        crossing = "none"
    except TokenreelError as error:
        crossing = str(error)
    resumed = FeedLoader(recipe)
    resumed.load_state_dict({**resumed.state_dict(), "step": 3})
    batch = next(iter(resumed))["input_ids"]
    size = 8 // resumed.world_size
    assert batch.shape == (8, SEQ_LEN)
    rows = Feed(recipe).batch(3).input_ids[resumed.rank * size : (resumed.rank + 1) * size]
    local = sorted(batch.addressable_shards, key=lambda shard: shard.index[0].start)
    assert np.array_equal(np.concatenate([shard.data for shard in local]), rows)
    result = evaluate(uniform, val_recipe(folder, global_batch_size=9))
    figures = {"loss": result.loss, "weight": result.weight, "steps": result.steps}
    print(json.dumps({"crossing": crossing, "evaluation": figures, **errors_of(recipe, folder)}))


if __name__ == "__main__":
    main()
