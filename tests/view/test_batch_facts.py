"""The summary of a step says of each row what the batch that a trainer gets is made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.view.looking import EVERY_KIND, feed_of

from tokenreel import Recipe, Source, StoreWriter
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.view.batch_facts import step_facts


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("seq_len", [97, 160])
def test_rows_are_counted_as_the_batch_has_them(stores: Path, kind: str, seq_len: int) -> None:
    feed = feed_of(stores, kind, seq_len=seq_len)
    for step in range(5):
        facts, batch = step_facts(feed, step), feed.batch(step)
        segments = batch.segment_ids
        assert [row["used"] for row in facts["rows"]] == (segments > 0).sum(axis=1).tolist()
        assert [row["segments"] for row in facts["rows"]] == segments.max(axis=1).tolist()
        trained = np.count_nonzero(batch.loss_weights, axis=1).tolist()
        assert [row["trained"] for row in facts["rows"]] == trained
        assert facts["trained"] == sum(trained)
        assert facts["filled"] == np.count_nonzero(segments) / segments.size


@pytest.mark.parametrize("rows", ["packed", "windows"])
def test_stored_weights_are_counted_label_by_label(
    tmp_path: Path, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(3)
    with StoreWriter(tmp_path / "s", vocab_size=9, weights="float32") as writer:
        for _ in range(40):
            weights = generator.choice([0, 0.5, 1], int(generator.integers(2, 60)))
            writer.add(np.ones(len(weights), int), weights=weights)
    source = Source(name="s", path=tmp_path / "s", rows=rows)
    feed = Feed(Recipe(seq_len=48, global_batch_size=5, sources=[source]))
    monkeypatch.setattr("tokenreel.view.batch_facts.SLOTS_AT_ONCE", 100)  # two rows at a time
    for step in range(4):
        trained = np.count_nonzero(feed.batch(step).loss_weights, axis=1).tolist()
        assert [row["trained"] for row in step_facts(feed, step)["rows"]] == trained


def test_the_only_document_of_a_row_is_named_with_its_place(recipe: Path) -> None:
    feed = Feed(recipe)
    named = 0
    for step in range(10):
        explained = feed.explain(step)
        for told, row in zip(step_facts(feed, step)["rows"], explained.rows, strict=True):
            assert told["source"] == ["texts", "chats"].index(row.source)
            assert told["epoch"] == row.epoch
            assert told["document"] == row.document
            place = str(row.segments[0].provenance)
            assert told["provenance"] == (None if row.document is None else place)
            named += told["provenance"] is not None
    assert named > 10


@pytest.mark.parametrize(("world_size", "grad_accum"), [(1, 1), (2, 1), (4, 1), (3, 2), (6, 1)])
def test_ranks_and_microbatches_are_those_of_the_ranks_batches(
    recipe: Path, world_size: int, grad_accum: int
) -> None:
    feed = Feed(replace(Feed(recipe).recipe, grad_accum=grad_accum))
    whole = feed.batch(3).input_ids.reshape(6, -1)
    for row in step_facts(feed, 3, world_size=world_size)["rows"]:
        part = feed.batch(3, rank=row["rank"], world_size=world_size).input_ids
        rows = part[row["microbatch"]] if grad_accum > 1 else part
        assert (rows == whole[row["row"]]).all(axis=1).any()


def test_an_evaluation_ends_with_rows_that_only_fill_up(stores: Path) -> None:
    feed = feed_of(stores, "packed chats", rows=7, passes=1)
    last = len(feed) - 1
    left = feed.deal.num_rows_in(last)
    assert 0 < left < 7
    facts = step_facts(feed, last)
    assert [row["source"] for row in facts["rows"]] == [0] * left + [None] * (7 - left)
    assert facts["by_source"] == [left]
    assert [row["source"] for row in step_facts(feed, 0)["rows"]] == [0] * 7


def test_more_ranks_than_rows_and_steps_behind_the_end_are_refused(recipe: Path) -> None:
    feed = Feed(recipe)
    with pytest.raises(ConfigError, match=r"bad world_size .expected 1 to 6, got 7"):
        step_facts(feed, 0, world_size=7)
    with pytest.raises(ConfigError, match="the run ends after 40 steps"):
        step_facts(feed, 40)
