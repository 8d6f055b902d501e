"""Recipes with passes in every adapter: all rows, as many steps as said, each time anew."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import grain  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from tests.adapters.making import FIELDS, equals, mixed_recipe, val_recipe, write_stores
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

import tokenreel.jax
from tokenreel.errors import ConfigError, EndlessError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.grain import FeedSource
from tokenreel.torch import FeedDataset, FeedLoader, FeedRows, evaluate

STEPS = 4
Make = Callable[[Recipe], Any]
LOADERS: dict[str, Make] = {
    "torch": FeedLoader,
    "torch, prefetch 0": lambda recipe: FeedLoader(recipe, prefetch=0),
    "torch, prefetch 9": lambda recipe: FeedLoader(recipe, prefetch=9),
    "jax": tokenreel.jax.FeedLoader,
    "DataLoader": lambda recipe: DataLoader(FeedDataset(recipe), batch_size=None),
    "StatefulDataLoader": lambda recipe: StatefulDataLoader(FeedDataset(recipe), batch_size=None),
    "grain": lambda recipe: grain.MapDataset.source(FeedSource(recipe)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores")
    write_stores(path)
    return path


@pytest.fixture
def recipe(folder: Path) -> Recipe:
    return val_recipe(folder)


def shows(batches: Iterable[dict[str, Any]], feed: Feed, *, stop: int | None = None) -> bool:
    """Are these all batches of a feed, up to a step?"""
    stop, found = len(feed) if stop is None else stop, list(batches)
    return len(found) == stop and all(equals(b, feed.batch(n)) for n, b in enumerate(found))


@pytest.mark.filterwarnings("ignore:'set_vital'")  # said by torch of torchdata
@pytest.mark.parametrize("name", LOADERS)
def test_each_iteration_of_a_validation_loader_shows_every_row(recipe: Recipe, name: str) -> None:
    feed, loader = Feed(recipe), LOADERS[name](recipe)
    assert len(loader) == len(feed) == STEPS
    assert feed.deal.num_rows_in(STEPS - 1) < 8  # the last batch is filled up
    assert shows(islice(loader, 2), feed, stop=2)  # as a sanity check does
    for _ in range(3):
        assert shows(loader, feed)
    assert shows(islice(loader, 3), feed, stop=3)
    assert shows(loader, feed)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_validation_goes_on_behind_a_state_once_and_then_begins_anew(
    recipe: Recipe, name: str
) -> None:
    feed, loader = Feed(recipe), LOADERS[name](recipe)
    stream = iter(loader)
    assert shows(islice(stream, 2), feed, stop=2)
    state = loader.state_dict()
    resumed = LOADERS[name](recipe)
    resumed.load_state_dict(state)
    rest = list(resumed)
    assert [equals(b, feed.batch(2 + n)) for n, b in enumerate(rest)] == [True] * 2
    assert shows(resumed, feed)


@pytest.mark.parametrize("name", ["torch", "jax", "DataLoader"])
def test_a_training_loader_that_is_iterated_again_says_that_the_run_has_ended(
    folder: Path, name: str
) -> None:
    loader = LOADERS[name](mixed_recipe(folder, steps=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(loader)) == 3
    with pytest.warns(UserWarning, match="the run has ended: all 3 steps were streamed"):
        assert list(loader) == []


@pytest.mark.parametrize("name", ["torch", "jax", "DataLoader"])
def test_a_loader_says_what_is_left_unshown_where_a_source_runs_out(
    folder: Path, name: str
) -> None:
    mixed = mixed_recipe(folder, phases=())
    once = [replace(source, max_epochs=1) for source in mixed.sources]
    loader = LOADERS[name](replace(mixed, sources=once))
    with pytest.warns(UserWarning, match=r"the run ends after \d steps: source '\w+' runs out"):
        assert len(list(loader)) == len(loader) == loader_feed(loader).num_steps


def loader_feed(loader: Any) -> Feed:
    """Return the feed behind a loader."""
    feed: Feed = getattr(loader, "dataset", loader).feed
    return feed


@pytest.mark.parametrize("name", ["torch", "torch, prefetch 0", "jax"])
def test_an_iteration_goes_on_when_another_has_ended(recipe: Recipe, name: str) -> None:
    feed, loader = Feed(recipe), LOADERS[name](recipe)
    stream = iter(loader)
    first = [next(stream)]
    assert shows(loader, feed)
    assert shows([*first, *stream], feed)


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_ranks_of_a_validation_share_its_rows_and_have_as_many_steps(
    recipe: Recipe, world_size: int
) -> None:
    feed = Feed(recipe)
    real = [feed.batch(step).input_ids[: feed.deal.num_rows_in(step)] for step in range(STEPS)]
    kinds: list[Any] = [FeedLoader, tokenreel.jax.FeedLoader, FeedSource]
    for kind in kinds:
        parts = [list(kind(recipe, rank=r, world_size=world_size)) for r in range(world_size)]
        assert {len(part) for part in parts} == {STEPS}
        assert {np.asarray(b["labels"]).shape for p in parts for b in p} == {
            (-(-8 // world_size), 16)
        }
        for step in range(STEPS):
            shown = [np.asarray(part[step]["source_ids"]) >= 0 for part in parts]
            ids = [np.asarray(part[step]["input_ids"]) for part in parts]
            rows = [rows[here] for rows, here in zip(ids, shown, strict=True)]
            assert np.array_equal(np.concatenate(rows), real[step])


def test_an_epoch_is_no_longer_than_the_run(recipe: Recipe) -> None:
    training = replace(recipe, passes=None, steps=STEPS)
    loader = FeedLoader(training, epoch_steps=100)
    assert len(loader) == len(list(loader)) == STEPS


def test_an_evaluation_has_no_epochs(recipe: Recipe) -> None:
    for kind in (FeedLoader, FeedRows):
        with pytest.raises(ConfigError, match="an evaluation has no epochs"):
            kind(recipe, epoch_steps=2)


def test_an_evaluation_in_between_leaves_a_loader_where_it_was(recipe: Recipe) -> None:
    model = torch.nn.Embedding(2**16, 4)

    def forward(model: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return torch.zeros(*batch["input_ids"].shape, 2**16)

    loader = FeedLoader(recipe)
    assert len(list(loader)) == STEPS
    evaluate(model, loader.feed, forward=forward)
    assert len(list(loader)) == STEPS
    trained = FeedLoader(replace(recipe, passes=None, steps=STEPS))
    next(iter(trained))

    def broken(model: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        raise MemoryError

    with pytest.raises(MemoryError):
        evaluate(model, trained.feed, forward=broken)
    assert trained.feed.step == 1


def test_rows_end_where_a_sequence_does(recipe: Recipe) -> None:
    sources = [replace(recipe.sources[0]), replace(recipe.sources[2])]  # weights of 0 and 1
    rows = FeedRows(replace(recipe, sources=sources))
    assert len(list(rows)) == len(rows)  # type: ignore[call-overload]
    with pytest.raises(IndexError):
        rows[len(rows)]


@pytest.mark.parametrize("size", [1, 3, 8, 16, 100])
def test_rows_of_a_validation_come_at_any_batch_size_and_in_any_order(
    recipe: Recipe, size: int
) -> None:
    sources = [replace(recipe.sources[0]), replace(recipe.sources[2])]  # weights of 0 and 1
    recipe = replace(recipe, sources=sources)
    feed, rows = Feed(recipe), FeedRows(recipe)
    every = [feed.batch(step) for step in range(len(feed))]
    real = np.concatenate([batch.source_ids for batch in every]) >= 0
    expected = np.concatenate([batch.input_ids for batch in every])[real]
    assert len(rows) == real.sum() < len(real)
    found = torch.cat([batch["input_ids"] for batch in DataLoader(rows, batch_size=size)])
    assert found.tolist() == expected.tolist()
    mixed = np.random.default_rng(size).permutation(len(rows))
    shuffled = DataLoader(rows, batch_size=size, sampler=mixed.tolist())
    found = torch.cat([batch["input_ids"] for batch in shuffled])
    assert found.tolist() == expected[mixed].tolist()
    rows.set_epoch(5)  # as Accelerate does before each evaluation
    assert torch.equal(rows[0]["input_ids"], torch.from_numpy(expected[0]))


def test_a_run_without_end_has_no_length_in_any_adapter(folder: Path) -> None:
    endless = mixed_recipe(folder)
    kinds: list[Any] = [FeedLoader, tokenreel.jax.FeedLoader, FeedDataset, FeedRows, FeedSource]
    for kind in kinds:
        with pytest.raises(EndlessError, match="give the recipe steps; or passes"):
            len(kind(endless))
    source, feed = FeedSource(endless), Feed(endless)
    assert equals(source[10**6], feed.batch(10**6))
    assert repr(source).endswith("steps=None)")
    with pytest.raises(IndexError, match="step -1 of a run without end"):
        source[-1]


def test_documents_and_masks_are_fields_of_every_adapter(recipe: Recipe) -> None:
    fields = ["document_ids", "attention_mask", "source_ids"]
    feed = Feed(recipe)
    expected = [feed.batch(step, extra=("document_ids",)) for step in range(STEPS)]
    kinds: list[Any] = [FeedLoader, tokenreel.jax.FeedLoader, FeedSource]
    for kind in kinds:
        for made, batch in zip(kind(recipe, fields=fields), expected, strict=True):
            assert list(made) == fields
            for name in fields:
                assert np.array_equal(np.asarray(made[name]), getattr(batch, name)), name
            assert np.array_equal(np.asarray(made["document_ids"]) >= 0, batch.attention_mask)
    assert (expected[-1].document_ids[expected[-1].source_ids < 0] == -1).all()  # type: ignore[index]
    assert "document_ids" not in FIELDS
    with_ranks = next(iter(FeedLoader(recipe, rank=2, world_size=3, fields=fields)))
    part = feed.batch(0, rank=2, world_size=3, extra=("document_ids",))
    assert np.array_equal(with_ranks["document_ids"], part.document_ids)  # type: ignore[arg-type]
