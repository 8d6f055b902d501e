"""Fault 30 at the adapters: unequal numbers of rows or batches are refused before the first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.errors import MismatchError
from tokenreel.feed.agreement import check_claims, claim_of
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.torch import FeedLoader


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_store(tmp_path / "a", [100])
    return recipe_of(
        Source(name="a", path=tmp_path / "a"), seq_len=8, global_batch_size=12, steps=5
    )


def test_ranks_with_unequal_numbers_of_batches_are_refused_by_each(recipe: Recipe) -> None:
    feeds = [Feed(recipe), Feed(replace(recipe, steps=6)), Feed(replace(recipe, steps=None))]
    claims = [claim_of(feed, rank=rank, world_size=3) for rank, feed in enumerate(feeds)]
    assert [claim["number of steps"] for claim in claims] == [5, 6, None]
    with pytest.raises(MismatchError) as caught:
        check_claims(claims)
    assert caught.value.differing == {"number of steps on rank 1 and 1 more": (5, 6)}


@pytest.mark.parametrize("world_size", [1, 3, 4, 5])
def test_every_rank_gets_as_many_batches_of_the_same_shape(recipe: Recipe, world_size: int) -> None:
    shapes = {
        tuple(
            tuple(b["labels"].shape) for b in FeedLoader(recipe, rank=rank, world_size=world_size)
        )
        for rank in range(world_size)
    }
    assert shapes == {((-(-12 // world_size), 8),) * 5}
