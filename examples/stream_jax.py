"""Train a small JAX model on text that streams; kill it, run it again, see the same losses.

    python examples/stream_jax.py --folder run                       # Ctrl-C or kill -9 it
    python examples/stream_jax.py --folder run                       # goes on where it was
    python examples/stream_jax.py --folder run --text "docs/*.jsonl"

Weights, optimizer and the state of the stream are one file, replaced at once: a checkpoint is
either the old one or the new one. A resumed run gives the losses of an unbroken one, to the
last bit, with shuffling and prefetch on. Each step prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tokenreel.stream import StreamPipeline

WIDTH, HEADS, LAYERS = 64, 4, 2
RATE, DECAY_1, DECAY_2 = 3e-3, 0.9, 0.99

Tree = Any


def stream_config(text: str) -> dict[str, Any]:
    """Return the configuration of the stream: bytes, shuffled, packed in bins, made ahead."""
    return {
        "data": {
            "backend": "local_text",
            "local_files": text,
            "shuffle_buffer_size": 64,
            "packing_mode": "bin",
            "packing_buffer_docs": 32,
            "grain_prefetch": 2,
            "tokenizer": {"kind": "byte", "add_eos": True},
        },
        "train": {"seq_len": 128, "batch_size": 4, "grad_accum": 2},
    }


def make_weights(vocab_size: int, seq_len: int) -> Tree:
    """Return the weights of a small transformer; those of the layers lie stacked."""
    chance = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return (chance.standard_normal(shape) / shape[-2] ** 0.5).astype(np.float32)

    return {
        "tokens": matrix(vocab_size, WIDTH),
        "positions": matrix(seq_len, WIDTH),
        "layers": {
            "qkv": matrix(LAYERS, WIDTH, 3 * WIDTH),
            "out": matrix(LAYERS, WIDTH, WIDTH),
            "up": matrix(LAYERS, WIDTH, 4 * WIDTH),
            "down": matrix(LAYERS, 4 * WIDTH, WIDTH),
        },
    }


def normed(values: jax.Array) -> jax.Array:
    """Return the values with unit variance along the width."""
    return values * jax.lax.rsqrt(jnp.mean(values**2, axis=-1, keepdims=True) + 1e-6)


def attend(layer: Tree, values: jax.Array, mask: jax.Array) -> jax.Array:
    """Let each token see the earlier ones of its own document."""
    rows, length, _ = values.shape
    split = (values @ layer["qkv"]).reshape(rows, length, 3, HEADS, -1)
    query, key, value = (split[:, :, part] for part in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5
    weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(rows, length, -1) @ layer["out"]


def loss_sum(weights: Tree, batch: dict[str, jax.Array]) -> jax.Array:
    """Return the sum of the losses of a microbatch, [B, T]."""
    segments, labels = batch["segment_ids"], batch["labels"]
    causal = jnp.tril(jnp.ones((segments.shape[1],) * 2, bool))
    mask = causal & (segments[:, :, None] == segments[:, None])
    values = weights["tokens"][batch["input_ids"]] + weights["positions"][batch["position_ids"]]

    def apply(values: jax.Array, layer: Tree) -> tuple[jax.Array, None]:
        values = values + attend(layer, normed(values), mask)
        return values + jax.nn.gelu(normed(values) @ layer["up"]) @ layer["down"], None

    values, _ = jax.lax.scan(apply, values, weights["layers"])
    logs = jax.nn.log_softmax(normed(values) @ weights["tokens"].T)
    picked = jnp.take_along_axis(logs, jnp.maximum(labels, 0)[..., None], axis=-1)[..., 0]
    return -jnp.sum(jnp.where(labels >= 0, picked, 0.0))


@jax.jit
def train_step(trained: Tree, batch: dict[str, jax.Array]) -> tuple[Tree, jax.Array]:
    """Return what is trained after a step over [A, B, T], and the loss per token."""
    zeros = jax.tree.map(jnp.zeros_like, trained["weights"])

    def add(carry: Tree, micro: dict[str, jax.Array]) -> tuple[Tree, None]:
        loss, slopes = jax.value_and_grad(loss_sum)(trained["weights"], micro)
        return (carry[0] + loss, jax.tree.map(jnp.add, carry[1], slopes)), None

    (loss, slopes), _ = jax.lax.scan(add, (jnp.zeros(()), zeros), batch)
    count = jnp.maximum(jnp.sum(batch["labels"] >= 0), 1)
    slopes = jax.tree.map(lambda slope: slope / count, slopes)
    step = trained["step"] + 1
    first = jax.tree.map(partial(_blend, DECAY_1), trained["first"], slopes)
    second = jax.tree.map(lambda old, new: _blend(DECAY_2, old, new**2), trained["second"], slopes)

    def move(weight: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
        scale = jnp.sqrt(square / (1 - DECAY_2**step)) + 1e-8
        return weight - RATE * mean / (1 - DECAY_1**step) / scale

    weights = jax.tree.map(move, trained["weights"], first, second)
    return {"weights": weights, "first": first, "second": second, "step": step}, loss / count


def _blend(decay: float, old: jax.Array, new: jax.Array) -> jax.Array:
    return decay * old + (1 - decay) * new


def save(path: Path, trained: Tree, state: dict[str, Any]) -> None:
    """Write a checkpoint beside the old one and let it take its place at once."""
    leaves = {str(n): np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(trained))}
    waiting = path.with_suffix(".tmp")
    with waiting.open("wb") as file:
        np.savez(file, stream=np.array(json.dumps(state)), **leaves)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    waiting.replace(path)


def load(path: Path, trained: Tree) -> tuple[Tree, dict[str, Any]]:
    """Return what a checkpoint holds, in the shape of `trained`."""
    with np.load(path, allow_pickle=False) as file:
        leaves = [file[str(n)] for n in range(len(jax.tree.leaves(trained)))]
        state: dict[str, Any] = json.loads(str(file["stream"]))
    return jax.tree.unflatten(jax.tree.structure(trained), leaves), state


def main() -> None:
    """Train up to a step, from the last checkpoint on."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where checkpoints lie")
    parser.add_argument("--text", default=str(Path(os.__file__).parent / "*.py"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = args.folder / "checkpoint.npz"
    with StreamPipeline(stream_config(args.text)) as pipeline:
        weights = make_weights(pipeline.vocab_size, pipeline.config.train.seq_len)
        zeros = jax.tree.map(np.zeros_like, weights)
        trained = {"weights": weights, "first": zeros, "second": zeros, "step": np.float32(0)}
        if checkpoint.exists():
            trained, state = load(checkpoint, trained)
            pipeline.set_state(state)
        while int(trained["step"]) < args.steps:
            batch = next(pipeline)
            trained, loss = train_step(trained, batch.to_jax())
            print(json.dumps({"step": batch.step, "loss": float(loss)}), flush=True)
            if (batch.step + 1) % args.every == 0:
                save(checkpoint, trained, pipeline.get_state())


if __name__ == "__main__":
    main()
