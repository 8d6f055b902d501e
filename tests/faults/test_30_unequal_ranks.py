"""Fault 30: ranks that would get unequal numbers of rows or batches are refused at start."""

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
    return recipe_of(Source(name="a", path=tmp_path / "a"), seq_len=8, batch_size=12, steps=5)


@pytest.mark.parametrize(("world", "accumulate"), [(5, 1), (24, 1), (4, 2), (2, 4)])
def test_a_world_that_does_not_divide_the_batch_is_refused_before_the_first(
    recipe: Recipe, world: int, accumulate: int
) -> None:
    feed = Feed(replace(recipe, accumulate=accumulate))
    with pytest.raises(ConfigError) as caught:
        feed.stream(rank=0, world=world)  # not even iterated
    assert str(caught.value) == (
        "the batch does not divide over the ranks and microbatches "
        f"(expected a multiple of {world * accumulate}, got 12)"
    )
    with pytest.raises(ConfigError, match="does not divide over the ranks"):
        feed.batch(0, rank=0, world=world)


@pytest.mark.parametrize(("rank", "world"), [(-1, 4), (4, 4), (1, 1), (0, 0), (0, -2)])
def test_a_rank_outside_the_world_is_refused(recipe: Recipe, rank: int, world: int) -> None:
    feed = Feed(recipe)
    with pytest.raises(ConfigError, match="bad rank"):
        feed.stream(rank=rank, world=world)
    with pytest.raises(ConfigError, match="bad rank"):
        feed.batch(0, rank=rank, world=world)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 6, 12])
def test_every_rank_gets_the_same_number_of_batches_and_rows(recipe: Recipe, world: int) -> None:
    shapes = {
        tuple(batch.input_ids.shape for batch in Feed(recipe).stream(rank=rank, world=world))
        for rank in range(world)
    }
    assert shapes == {((12 // world, 8),) * 5}
