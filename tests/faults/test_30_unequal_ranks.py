"""Fault 30: no rank gets another number of batches, or another shape, than the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_store(tmp_path / "a", [100])
    return recipe_of(
        Source(name="a", path=tmp_path / "a"), seq_len=8, global_batch_size=12, steps=5
    )


@pytest.mark.parametrize(("rank", "world_size"), [(-1, 4), (4, 4), (1, 1), (0, 0), (0, -2)])
def test_a_rank_outside_the_world_is_refused(recipe: Recipe, rank: int, world_size: int) -> None:
    feed = Feed(recipe)
    with pytest.raises(ConfigError, match="bad rank"):
        feed.stream(rank=rank, world_size=world_size)
    with pytest.raises(ConfigError, match="bad rank"):
        feed.batch(0, rank=rank, world_size=world_size)


@pytest.mark.parametrize("grad_accum", [1, 3])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 7, 12, 24])
def test_every_rank_gets_the_same_number_of_batches_and_rows(
    recipe: Recipe, world_size: int, grad_accum: int
) -> None:
    recipe = replace(recipe, grad_accum=grad_accum)
    shapes = {
        tuple(
            batch.input_ids.shape for batch in Feed(recipe).stream(rank=rank, world_size=world_size)
        )
        for rank in range(world_size)
    }
    width = -(-12 // (world_size * grad_accum))
    shape = (width, 8) if grad_accum == 1 else (grad_accum, width, 8)
    assert shapes == {(shape,) * 5}
