r"""Losses on a mesh of three devices and on one, of one process.

    XLA_FLAGS=--xla_force_host_platform_device_count=3 \
    python -m tests.adapters.jax_losses FOLDER

Prints the losses of steps of 8 rows, their gradients' distance, the shapes on each device,
and an evaluation.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.adapters.making import FIELDS, mixed_recipe, val_recipe
from tests.adapters.tiny_jax import Weights, read_weights, segmented

from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.jax import FeedLoader, evaluate, loss_by_source

STEPS = 3


@jax.jit
@partial(jax.value_and_grad, has_aux=True)
def losses_of(weights: Weights, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Return the sum of the losses of a step, and sums and weights by source, [2, S]."""
    sums = jnp.stack(loss_by_source(segmented(weights, batch), batch, num_sources=3))
    return sums[0].sum(), sums


def over(num_devices: int, recipe: Recipe) -> NamedSharding:
    """Return the sharding of the rows over so many devices."""
    mesh = Mesh(np.array(jax.devices()[:num_devices]), ("data",))
    lead = (None,) if recipe.grad_accum > 1 else ()
    return NamedSharding(mesh, PartitionSpec(*lead, "data", None))


def run(weights: Weights, folder: Path, num_devices: int, grad_accum: int) -> dict[str, Any]:
    """Return what a mesh of so many devices makes of the first steps."""
    recipe = mixed_recipe(folder, grad_accum=grad_accum, steps=STEPS)
    loader, feed = FeedLoader(recipe, sharding=over(num_devices, recipe)), Feed(recipe)
    losses, gradients, by_source = [], [], []
    for step, batch in enumerate(loader):
        (loss, sums), gradient = losses_of(weights, batch)
        losses.append(float(loss) / feed.weight_sum(step))
        gradients.append(np.concatenate([np.ravel(array) for array in gradient.values()]))
        by_source.append(sums.tolist())
        check_rows(batch, feed, step)
    shards = [batch[name].addressable_shards for name in ("input_ids", "source_ids")]
    # With rank and world_size given, the sharding is that of the rank's rows alone.
    given = FeedLoader(recipe, sharding=over(num_devices, recipe), rank=1, world_size=2)
    part = next(iter(given))
    return {
        "losses": losses,
        "gradients": np.stack(gradients),
        "by_source": by_source,
        "shapes": [[list(shard.data.shape) for shard in each] for each in shards],
        "global": list(batch["input_ids"].shape),
        "given": [list(part[name].shape) for name in ("input_ids", "source_ids")],
    }


def check_rows(batch: dict[str, jax.Array], feed: Feed, step: int) -> None:
    """Compare the rows that are none of padding with those of the step, in all fields."""
    whole = feed.batch(step)
    real = np.asarray(batch["source_ids"]).reshape(-1) >= 0
    for name in FIELDS:
        expected = getattr(whole, name).reshape(8, -1)
        found = np.asarray(batch[name]).reshape(len(real), -1)
        assert np.array_equal(found[real], expected), (step, name)
    assert not np.asarray(batch["loss_weights"]).reshape(len(real), -1)[~real].any()


def main() -> None:
    """Print the figures of one device and of three."""
    folder = Path(sys.argv[1])
    weights = read_weights(folder / "weights.npz")
    model = partial(segmented, weights)
    printed: dict[str, Any] = {}
    for grad_accum in (1, 2):
        one, three = (run(weights, folder, count, grad_accum) for count in (1, 3))
        apart = np.abs(one.pop("gradients") - (there := three.pop("gradients"))).max()
        three["gradients apart"] = float(apart / np.abs(there).max())
        recipe = val_recipe(folder, grad_accum=grad_accum)
        three["evaluation"] = evaluate(model, recipe, sharding=over(3, recipe)).as_dict()
        printed |= {f"1 x {grad_accum}": one, f"3 x {grad_accum}": three}
    print(json.dumps(printed))


if __name__ == "__main__":
    main()
