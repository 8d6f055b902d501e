"""The transformer of tiny_model, in JAX, on the weights that the other one has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

HEADS = 2
Weights = Mapping[str, jax.Array]


def read_weights(path: Path) -> Weights:
    """Return the weights that were kept by numpy.savez."""
    with np.load(path) as kept:
        return {name: jnp.asarray(kept[name]) for name in kept.files}


@jax.jit
def segmented(weights: Weights, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Return the logits of a packed batch, [B, T, V] or [A, B, T, V]."""

    def linear(name: str, inputs: jax.Array) -> jax.Array:
        return inputs @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    segments = batch["segment_ids"]
    *lead, length = segments.shape
    seen = jnp.tril(segments[..., :, None] == segments[..., None, :])[..., None, :, :]
    hidden = weights["tokens.weight"][batch["input_ids"]]
    hidden = hidden + weights["positions.weight"][batch["position_ids"]]
    width = hidden.shape[-1]
    for layer in range(2):
        mixed = linear(f"mix.{layer}", hidden).reshape(*lead, length, 3, HEADS, width // HEADS)
        query, key, value = jnp.moveaxis(mixed, -3, 0)
        scores = jnp.einsum("...qhd,...khd->...hqk", query, key) / np.sqrt(width // HEADS)
        shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        found = jnp.einsum("...hqk,...khd->...qhd", shares, value).reshape(*lead, length, width)
        hidden = hidden + jnp.tanh(linear(f"out.{layer}", found))
    return linear("head", hidden)
