"""Any number of ranks: parts differ by a row at most, and their union is the global batch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import recipe_of, scratch, write_store
from tests.rows.test_prompts import feed_of, write_prompts

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.parts import part_of
from tokenreel.feed.recipe import Recipe, Source


@given(
    batch=st.integers(1, 40),
    world_size=st.integers(1, 12),
    grad_accum=st.integers(1, 4),
    devices=st.integers(1, 3),
    left=st.integers(1, 40),
)
@settings(max_examples=150, deadline=None)
def test_parts_share_out_every_row_once_and_differ_by_one(
    batch: int, world_size: int, grad_accum: int, devices: int, left: int
) -> None:
    parts = [
        part_of(batch, 5, rank=rank, world_size=world_size, grad_accum=grad_accum, devices=devices)
        for rank in range(world_size)
    ]
    assert len({part.shape for part in parts}) == 1
    for num_rows in (batch, min(left, batch)):
        seats = np.array([part.seats(num_rows) for part in parts])
        assert seats.shape == (world_size, math.prod(parts[0].shape[:-1]))
        assert seats[seats >= 0].tolist() == list(range(num_rows))
        of_ranks = (seats >= 0).sum(axis=1)
        assert np.ptp(of_ranks) <= 1
        of_devices = (seats.reshape(world_size * grad_accum * devices, -1) >= 0).sum(axis=1)
        assert np.ptp(of_devices) <= 1
    if batch % (world_size * grad_accum * devices) == 0:
        assert (np.concatenate([part.seats(batch) for part in parts]) == np.arange(batch)).all()


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_store(tmp_path / "a", [9, 30, 4, 17, 25, 3, 8] * 3, sidecar="turns")
    write_store(tmp_path / "b", [5, 12, 40] * 3, first_token=1000, sidecar="weights")
    sources = [Source(name=name, path=tmp_path / name, rows="packed") for name in ("a", "b")]
    return recipe_of(*sources, seq_len=12, global_batch_size=8, seed=5)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 7, 8, 11])
def test_sums_and_denominators_are_exact_for_any_number_of_ranks(
    recipe: Recipe, world_size: int
) -> None:
    feed = Feed(recipe)
    for step in range(6):
        whole = feed.batch(step)
        parts = [feed.batch(step, rank=rank, world_size=world_size) for rank in range(world_size)]
        assert {part.input_ids.shape for part in parts} == {(-(-8 // world_size), 12)}
        for name in ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids"):
            shown = [getattr(part, name)[part.source_ids >= 0] for part in parts]
            assert np.array_equal(np.concatenate(shown), getattr(whole, name))
        filled = [part.loss_weights[part.source_ids < 0] for part in parts]
        assert not np.concatenate(filled).any()
        total = math.fsum(float(w) for part in parts for w in part.loss_weights.ravel())
        assert total == feed.weight_sum(step)


@given(data=st.data(), size=st.integers(1, 9), step=st.integers(0, 40))
@settings(max_examples=20, deadline=None)
def test_rows_by_their_seats_are_those_of_the_batch(
    data: st.DataObject, size: int, step: int
) -> None:
    with scratch() as folder:
        write_store(folder / "a", [70])
        write_store(folder / "b", [50], first_token=1000)
        sources = [Source(name=name, path=folder / name) for name in ("a", "b")]
        feed = Feed(recipe_of(*sources, seq_len=5, global_batch_size=size))
        seats = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=9)))
        batch, rows = feed.batch(step), feed.rows(step, seats)
        assert np.array_equal(rows.input_ids, batch.input_ids[seats])
        assert np.array_equal(rows.labels, batch.labels[seats])
        assert np.array_equal(rows.source_ids, batch.source_ids[seats])


@pytest.mark.parametrize("seats", [[0.5], [[0]], [8], [-1]])
def test_seats_that_are_none_are_refused(recipe: Recipe, seats: list[Any]) -> None:
    assert Feed(recipe).rows(0, [3, 1]).input_ids.shape == (2, 12)
    with pytest.raises(ConfigError):
        Feed(recipe).rows(0, seats)


def test_sources_and_documents_are_those_that_explain_tells(recipe: Recipe) -> None:
    feed = Feed(recipe)
    names = [source.name for source in recipe.sources]
    for step in range(8):
        batch = feed.batch(step, extra=("document_ids",))
        assert batch.source_ids.dtype == np.int32
        assert batch.document_ids is not None and batch.document_ids.dtype == np.int64
        assert ((batch.document_ids >= 0) == batch.attention_mask).all()
        for row in feed.explain(step).rows:
            assert batch.source_ids[row.row] == names.index(row.source)
            shown = [
                segment.document
                for segment in row.segments
                for _ in range(segment.start, segment.stop)
            ]
            inputs = batch.document_ids[row.row][batch.attention_mask[row.row]]
            assert inputs.tolist() == shown[: len(inputs)]
            assert len(shown) - len(inputs) in (0, 1)
    assert feed.batch(0).document_ids is None
    part = feed.batch(0, rank=0, world_size=3, extra=("document_ids", "attention_mask"))
    assert part.document_ids is not None
    assert (part.document_ids[part.source_ids < 0] == -1).all()
    assert np.array_equal(part.attention_mask, part.segment_ids > 0)


@pytest.mark.parametrize("padding", ["left", "right"])
def test_documents_stand_where_a_padded_prompt_stands(tmp_path: Path, padding: str) -> None:
    path = write_prompts(tmp_path / "s", [2, 5, 3])
    batch = feed_of(path, batch=3, padding=padding).batch(0, extra=("document_ids",))
    assert batch.document_ids is not None
    assert np.array_equal(batch.document_ids >= 0, batch.segment_ids > 0)
    assert {(ids >= 0).sum() for ids in batch.document_ids} == {2, 3, 5}
