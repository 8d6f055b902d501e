"""The losses of a step by source, and the mean over every token of a recipe.

What tokenreel.torch's `loss_by_source` and `evaluate` do, for global arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from os import PathLike

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from tokenreel.feed.feed import Feed
from tokenreel.feed.losses import Evaluation, LossSums
from tokenreel.feed.plain_labels import OfAnswers, check_answers, refuse_prompts
from tokenreel.feed.recipe import Recipe
from tokenreel.jax.loader import FeedLoader

Model = Callable[[Mapping[str, jax.Array]], jax.Array]


@partial(jax.jit, static_argnames=("num_sources", "answers"))
def loss_by_source(
    logits: jax.Array,
    batch: Mapping[str, jax.Array],
    *,
    num_sources: int,
    answers: OfAnswers | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return the weighted sum of the losses of each source, and the sum of its weights.

    Both [num_sources], ready to be added over batches; divided by each other they are the mean
    loss of each source over its trained tokens. Sources are numbered as in the recipe. A batch
    with groups of answers (rows of pairs) is refused, unless `answers` are "left_out", so that the
    rows beside them count alone, or count "as_text", rejected ones like any text.

    >>> batch = {"labels": jnp.array([[1, -100], [2, 3]]), "source_ids": jnp.array([2, 0]),
    ...     "loss_weights": jnp.array([[0.5, 0.0], [1.0, 1.0]])}
    >>> sums, weights = loss_by_source(jnp.zeros((2, 2, 4)), batch, num_sources=3)
    >>> weights.tolist(), [round(float(sums[s] / weights[s]), 4) for s in (0, 2)]
    ([2.0, 0.0, 0.5], [1.3863, 1.3863])
    """
    check_answers(batch, answers)
    labels, weights = batch["labels"], batch["loss_weights"]
    if answers == "left_out" and "group_ids" in batch:
        weights = jnp.where(batch["group_ids"] < 0, weights, 0)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    # An ignored label is -100, which is no id: its loss is taken at 0 and weighs nothing.
    ids = jnp.maximum(labels, 0)[..., None]
    each = jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, ids, axis=-1)[..., 0]
    losses = jnp.where(labels >= 0, each * weights, 0).sum(axis=-1).reshape(-1)
    # [S, rows]: where a row is of the source; one that only fills up the shape is of none. A sum
    # over it is a tree: scattered adds in float32 would lose 2e-6 over 4,096 rows.
    mine = jnp.arange(num_sources)[:, None] == batch["source_ids"].reshape(-1)

    def add(rows: jax.Array) -> jax.Array:
        return jnp.where(mine, rows, 0).sum(axis=-1)

    return add(losses), add(weights.sum(axis=-1).reshape(-1))


def evaluate(
    model: Model,
    recipe: Feed | Recipe | str | PathLike[str],
    *,
    sharding: Sharding | None = None,
    prefetch: int = 2,
) -> Evaluation:
    """Return the mean loss over the tokens of a recipe, and that of each source.

    The recipe has `passes`, or else a number of steps. `model(batch)` returns the logits of a
    global batch, [B, T, V] or, with accumulation, [A, B, T, V]; keep segments apart in it by
    segment_ids and position_ids. The same on every process. Of pairs the tokens of all answers
    count, those of rejected ones too; prompts, which have no labels, are refused.
    """
    own = copy(recipe) if isinstance(recipe, Feed) else recipe  # its step stays where it is
    loader = FeedLoader(own, sharding=sharding, prefetch=prefetch)
    feed = loader.feed
    refuse_prompts(feed.recipe)
    len(feed)  # a run without end is refused here
    sums = LossSums([source.name for source in feed.recipe.sources])
    feed.step = 0
    for batch in loader:
        losses, weights = loss_by_source(
            model(batch), batch, num_sources=len(sums.names), answers="as_text"
        )
        sums.add(np.asarray(losses), np.asarray(weights))
    return sums.mean()
