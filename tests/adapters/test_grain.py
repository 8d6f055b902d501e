"""The real Grain over steps of a feed."""

from __future__ import annotations

import pickle
from itertools import islice
from pathlib import Path

import grain  # type: ignore[import-untyped]
import numpy as np
import pytest
from absl import flags
from tests.adapters.making import equals, mixed_recipe, write_stores

from tokenreel.errors import ConfigError, MismatchError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.grain import FeedSource


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_stores(tmp_path)
    return mixed_recipe(tmp_path, steps=12)


def test_items_are_the_steps_of_a_rank(recipe: Recipe) -> None:
    source, feed = FeedSource(recipe, rank=1, world_size=4), Feed(recipe)
    assert len(source) == 12
    for step in (0, 7, np.int64(11)):
        assert equals(source[step], feed.batch(int(step), rank=1, world_size=4))
    for wrong in (-1, 12):
        with pytest.raises(IndexError, match=f"step {wrong} of 12"):
            source[wrong]
    assert repr(source) == f"FeedSource({feed.fingerprint[:12]}, rank=1, world_size=4, steps=12)"


def test_a_source_travels_as_its_recipe_and_notices_another_store(
    recipe: Recipe, tmp_path: Path
) -> None:
    feed = Feed(recipe)
    feed.step = 4
    feed.change_weights({"web": 1, "chat": 9, "notes": 1})
    sent = pickle.dumps(FeedSource(feed, world_size=2, fields=["input_ids"]))
    assert len(sent) < 6000
    received = pickle.loads(sent)
    assert list(received[9]) == ["input_ids"]
    assert np.array_equal(received[9]["input_ids"], feed.batch(9, world_size=2).input_ids)
    assert not np.array_equal(
        received[9]["input_ids"], Feed(recipe).batch(9, world_size=2).input_ids
    )
    (tmp_path / "notes").rename(tmp_path / "gone")
    (tmp_path / "notes").symlink_to(tmp_path / "web")
    with pytest.raises(MismatchError, match=r"stores\.2"):
        pickle.loads(sent)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.soak)])
def test_grains_iterators_yield_each_step_in_order_and_resume(recipe: Recipe, workers: int) -> None:
    def make() -> grain.DatasetIterator[dict[str, np.ndarray]]:
        dataset = grain.MapDataset.source(FeedSource(recipe)).to_iter_dataset(
            grain.ReadOptions(num_threads=2, prefetch_buffer_size=3)
        )
        if workers:
            dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        return iter(dataset)

    flags.FLAGS.mark_as_parsed()  # Grain asks for them when it starts workers
    feed = Feed(recipe)
    stream = make()
    for step in range(5):
        assert equals(next(stream), feed.batch(step))
    state = stream.get_state()
    expected = [feed.batch(step) for step in range(5, 12)]
    assert all(map(equals, islice(stream, 7), expected))
    resumed = make()
    resumed.set_state(state)
    rest = list(resumed)
    assert len(rest) == 7
    assert all(map(equals, rest, expected))


def test_bad_arguments_are_refused(recipe: Recipe) -> None:
    with pytest.raises(ConfigError, match="bad rank"):
        FeedSource(recipe, rank=2, world_size=2)
    with pytest.raises(ConfigError, match="unknown fields of a batch"):
        FeedSource(recipe, fields=["tokens"])
