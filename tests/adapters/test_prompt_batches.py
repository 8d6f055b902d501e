"""Loaders hand prompts on with their masks and records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.rows.test_prompts import write_prompts

from tokenreel import Feed, Recipe, Source
from tokenreel.errors import ConfigError
from tokenreel.torch import FeedLoader
from tokenreel.torch.transfer import Transfer

FIELDS = ("input_ids", "attention_mask", "records")


def recipe_of(tmp_path: Path) -> Recipe:
    path = tmp_path / "s"
    if not path.exists():
        write_prompts(path, [3, 2, 5, 4, 1])
    source = Source(name="a", path=path, rows="prompts", repeats=2)
    return Recipe(seq_len=5, global_batch_size=4, steps=9, sources=[source])


def test_a_loader_gives_tensors_and_the_records_beside_them(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    feed = Feed(recipe)
    parts = [
        FeedLoader(recipe, rank=rank, world_size=3, fields=FIELDS, prefetch=2) for rank in range(3)
    ]
    for step, batches in enumerate(zip(*parts, strict=True)):
        ids = torch.cat([batch["input_ids"] for batch in batches])
        mask = torch.cat([batch["attention_mask"] for batch in batches])
        records = [record for batch in batches for record in batch["records"]]
        is_row = torch.tensor([record is not None for record in records])
        whole = feed.batch(step)
        assert np.array_equal(ids[is_row].numpy(), whole.input_ids)
        assert np.array_equal(mask[is_row].numpy(), whole.attention_mask)
        assert not mask[~is_row].any()
        assert [record for record in records if record is not None] == feed.records(step)
    assert step == 8


def test_records_stay_where_they_are_when_tensors_move(tmp_path: Path) -> None:
    batch = next(iter(FeedLoader(recipe_of(tmp_path), fields=FIELDS)))
    moved = Transfer("meta")(batch)
    assert moved["input_ids"].device.type == "meta"
    assert moved["records"] is batch["records"]


def test_records_of_repeats_are_objects_of_their_own(tmp_path: Path) -> None:
    batch = next(iter(FeedLoader(recipe_of(tmp_path), fields=FIELDS)))
    first, second = batch["records"][:2]
    assert first == second and first is not second


def test_jax_has_no_arrays_of_records(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    from tokenreel.jax import FeedLoader as JaxLoader

    with pytest.raises(ConfigError, match="unknown fields of a batch"):
        JaxLoader(recipe_of(tmp_path), fields=FIELDS)
