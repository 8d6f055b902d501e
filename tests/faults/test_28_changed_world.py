"""Fault 28: world size, workers, prefetch and microbatches change in between, three times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source

FIELDS = ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids")
# World, microbatches, prefetch and steps of each leg of the run.
LEGS = [(8, 1, 0, 5), (2, 4, 3, 4), (6, 2, 1, 6), (1, 4, 2, 5)]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_store(tmp_path / "web", [150, 9, 33, 61], shard_tokens=64)
    write_store(tmp_path / "chat", [12, 25, 3, 18, 7] * 3, sidecar="turns", first_token=1000)
    write_store(
        tmp_path / "masked", [40, 2, 33, 21], sidecar="weights", shard_tokens=20, first_token=2000
    )
    sources = (
        Source(name="web", path=tmp_path / "web", weight=0.5),
        Source(name="chat", path=tmp_path / "chat", rows="packed", weight=0.3),
        Source(name="masked", path=tmp_path / "masked", rows="document_windows", weight=0.2),
    )
    phases = [Phase(start_step=4, weights={"web": 1, "chat": 3, "masked": 2}, ramp_steps=9)]
    return recipe_of(*sources, seq_len=9, global_batch_size=24, seed=11, phases=phases)


def legs(recipe: Recipe) -> Iterator[tuple[int, list[Batch]]]:
    """Yield step after step what all ranks get, each leg resumed from the state of the last."""
    state = json.dumps(Feed(recipe).state_dict())
    for world_size, grad_accum, prefetch, steps in LEGS:
        ranks = [Feed(replace(recipe, grad_accum=grad_accum)) for _ in range(world_size)]
        for feed in ranks:
            feed.load_state_dict(json.loads(state))
        streams = [
            feed.stream(rank=rank, world_size=world_size, prefetch=prefetch)
            for rank, feed in enumerate(ranks)
        ]
        for _ in range(steps):
            parts = [next(stream) for stream in streams]
            assert len({part.step for part in parts}) == 1
            yield parts[0].step, parts
        states = {json.dumps(feed.state_dict(), sort_keys=True) for feed in ranks}
        assert len(states) == 1  # any rank may save it
        state = states.pop()


def test_ranks_end_to_end_are_the_batches_of_an_uninterrupted_run(recipe: Recipe) -> None:
    whole = Feed(recipe)
    steps = []
    for step, parts in legs(recipe):
        expected = whole.batch(step)
        for name in FIELDS:
            joined = np.concatenate([getattr(part, name).reshape(-1, 9) for part in parts])
            assert np.array_equal(joined, getattr(expected, name)), (step, name)
        steps.append(step)
    assert steps == list(range(sum(leg[3] for leg in LEGS)))


def test_denominators_do_not_change_with_the_world(recipe: Recipe) -> None:
    whole = Feed(recipe)
    for step, parts in legs(recipe):
        total = sum(float(part.loss_weights.astype(np.float64).sum()) for part in parts)
        assert total == pytest.approx(whole.weight_sum(step), rel=1e-12)


def test_a_change_of_weights_survives_a_change_of_world(recipe: Recipe) -> None:
    feed = Feed(recipe)
    for _ in zip(range(3), feed, strict=False):
        pass
    feed.step = 3
    feed.change_weights({"chat": 1, "masked": 1})
    state = json.dumps(feed.state_dict())
    parts = []
    for rank in range(4):
        other = Feed(replace(recipe, grad_accum=3))
        other.load_state_dict(json.loads(state))
        parts.append(other.batch(7, rank=rank, world_size=4).input_ids.reshape(-1, 9))
    assert np.array_equal(np.concatenate(parts), feed.batch(7).input_ids)
