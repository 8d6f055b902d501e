"""Passes: every row of every source exactly so many times, then the run ends."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import recipe_of, scratch, write_store

from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.rows.kinds import Rows
from tokenreel.testing import check_resume, equal

KINDS = ("windows", "document_windows", "episodes", "packed")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_store(tmp_path / "a", [9, 30, 4, 17, 25, 3, 8], sidecar="turns")
    write_store(tmp_path / "b", [5, 12, 40], first_token=1000)
    write_store(tmp_path / "c", [90], first_token=3000)
    kinds: dict[str, Rows] = {"a": "packed", "b": "episodes", "c": "windows"}
    sources = [Source(name=name, path=tmp_path / name, rows=kinds[name]) for name in kinds]
    return recipe_of(*sources, seq_len=12, global_batch_size=4, seed=5, passes=1, pad_id=7)


def rows_of(batches: Sequence[Batch]) -> Counter[bytes]:
    """Count the rows that are shown, by everything in them."""
    counts: Counter[bytes] = Counter()
    for batch in batches:
        width = batch.input_ids.shape[-1]
        fields = (batch.input_ids, batch.labels, batch.loss_weights, batch.segment_ids)
        flat = [field.reshape(-1, width) for field in fields]
        for row, source in enumerate(batch.source_ids.reshape(-1).tolist()):
            if source >= 0:
                counts[b"".join(field[row].tobytes() for field in flat) + bytes([source])] += 1
    return counts


@given(
    sizes=st.lists(st.lists(st.integers(2, 40), min_size=1, max_size=8), min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    batch=st.integers(1, 9),
    passes=st.integers(1, 3),
    shuffle=st.lists(st.booleans(), min_size=3, max_size=3),
    world_size=st.integers(1, 4),
)
@settings(max_examples=25, deadline=None)
def test_every_row_is_shown_exactly_so_many_times(
    sizes: list[list[int]], kind: str, batch: int, passes: int, shuffle: list[bool], world_size: int
) -> None:
    with scratch() as folder:
        sources = []
        for number, lengths in enumerate(sizes):
            path = folder / str(number)
            write_store(path, lengths, first_token=1 + 1000 * number)
            more = {"name": str(number), "rows": kind, "shuffle": shuffle[number]}
            sources.append(Source(path=path, **more))  # type: ignore[arg-type]
        feed = Feed(recipe_of(*sources, seq_len=6, global_batch_size=batch, passes=passes))
        num_rows = [plan.num_rows for plan in feed.plans]
        assert len(feed) == -(-passes * sum(num_rows) // batch)
        batches = list(feed)
        assert len(batches) == len(feed)
        shown = np.concatenate([one.source_ids for one in batches])
        assert np.bincount(shown + 1, minlength=1 + len(sizes)).tolist() == [
            len(feed) * batch - passes * sum(num_rows),
            *(passes * n for n in num_rows),
        ]
        # No row more often than another, and each pass ends before the next begins.
        counts = rows_of(batches)
        assert sum(counts.values()) == passes * sum(num_rows)
        assert all(count % passes == 0 for count in counts.values())
        epochs = [e for step in range(len(feed)) for e in sorted(feed.locate(step).epoch.tolist())]
        assert epochs == sorted(epochs)
        parts = [
            one
            for step in range(len(feed))
            for one in (
                feed.batch(step, rank=rank, world_size=world_size) for rank in range(world_size)
            )
        ]
        assert rows_of(parts) == counts


def test_the_last_batch_is_filled_up_with_rows_that_weigh_nothing(recipe: Recipe) -> None:
    feed = Feed(recipe)
    last = list(feed)[-1]
    real = feed.deal.num_rows_in(len(feed) - 1)
    assert 0 < real < 4
    assert (last.source_ids[:real] >= 0).all()
    assert (last.source_ids[real:] == -1).all()
    assert (last.input_ids[real:] == 7).all()
    assert (last.labels[real:] == -100).all()
    assert not last.segment_ids[real:].any()
    assert not last.position_ids[real:].any()
    assert not last.loss_weights[real:].any()
    assert not last.attention_mask[real:].any()
    assert last.input_ids.shape == (4, 12)
    weights = [feed.weight_sum(step) for step in range(len(feed))]
    assert weights == [float(feed.batch(step).loss_weights.sum()) for step in range(len(feed))]
    assert feed.denominators(len(feed) - 1).samples == len(
        {
            (row, s)
            for row, line in enumerate(last.segment_ids)
            for s in set(line[last.loss_mask[row]])
        }
    )


def test_an_evaluation_begins_anew_with_each_iteration(recipe: Recipe) -> None:
    feed = Feed(recipe)
    whole = list(feed)
    assert equal(list(feed), whole)
    assert len(list(islice(feed, 2))) == 2  # as a sanity check does
    assert equal(list(feed), whole)
    state = feed.state_dict()
    assert state["step"] == len(feed)
    feed.load_state_dict(state)  # at the end of a pass, so the next one begins
    assert equal(list(feed), whole)
    feed.step = 2
    assert equal(list(feed), whole[2:])


def test_streams_side_by_side_each_show_every_step(recipe: Recipe) -> None:
    feed = Feed(recipe)
    pairs = [(one.step, other.step) for one, other in zip(feed, feed, strict=True)]
    assert pairs == [(step, step) for step in range(len(feed))]


def test_an_evaluation_can_be_resumed_anywhere(recipe: Recipe) -> None:
    check_resume(lambda: Feed(recipe), steps=len(Feed(recipe)) - 1)


def test_a_training_run_that_is_iterated_again_says_that_it_has_ended(recipe: Recipe) -> None:
    feed = Feed(replace(recipe, passes=None, steps=5))
    assert len(list(feed)) == 5
    with pytest.warns(UserWarning, match="the run has ended: all 5 steps were streamed"):
        assert list(feed) == []
    feed.load_state_dict(feed.state_dict())  # a run that was finished is resumed: nothing is wrong
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(feed) == []
        feed.step = 3
        assert [batch.step for batch in feed] == [3, 4]


def test_in_order_sources_come_one_after_the_other(recipe: Recipe) -> None:
    sources = [replace(source, shuffle=False) for source in recipe.sources]
    feed = Feed(replace(recipe, sources=sources, passes=2))
    num_rows = [plan.num_rows for plan in feed.plans]
    shown = np.concatenate([batch.source_ids for batch in feed])
    one_pass = np.repeat([0, 1, 2], num_rows)
    assert shown[: 2 * len(one_pass)].tolist() == [*one_pass, *one_pass]
    rows = [row for step in range(len(feed)) for row in feed.locate(step).row.tolist()]
    assert rows == [row for _ in range(2) for n in num_rows for row in range(n)]


def test_packed_rows_in_order_show_documents_in_order(tmp_path: Path) -> None:
    lengths = np.random.default_rng(1).integers(2, 40, 300).tolist()
    write_store(tmp_path / "s", lengths)
    source = Source(name="s", path=tmp_path / "s", rows="packed", shuffle=False)
    feed = Feed(recipe_of(source, seq_len=64, global_batch_size=8, passes=1))
    rows = [row for step in range(len(feed)) for row in feed.explain(step).rows]
    firsts = [row.segments[0].document for row in rows]
    assert firsts == sorted(firsts, key=lambda document: document or 0)
    for row in rows:
        documents = [segment.document or 0 for segment in row.segments]
        assert documents == sorted(documents)
    # Best fit still: hardly a slot is left.
    ledger = feed.plans[0].ledger
    assert ledger["padding"] < 0.02 * ledger["slots"]


def test_epochs_of_a_pass_are_whole_at_its_end(recipe: Recipe) -> None:
    feed = Feed(replace(recipe, passes=3))
    assert set(feed.epoch_of(len(feed)).values()) == {3.0}


def test_documents_are_traced_there_and_back(recipe: Recipe) -> None:
    feed = Feed(replace(recipe, passes=2))
    seen: Counter[tuple[str, int | None, int]] = Counter()
    for step in range(len(feed)):
        explained = feed.explain(step)
        assert len(explained.rows) == feed.deal.num_rows_in(step)
        for row in explained.rows:
            for segment in row.segments:
                seen[segment.source, segment.document, segment.start] += 1
                hits = feed.where(segment.source, segment.document or 0)
                assert any((hit.step, hit.row) == (step, row.row) for hit in hits)
    assert set(seen.values()) == {2}
    every = sum(len(feed.where("a", document)) for document in range(7))
    assert every == sum(count for (source, _, _), count in seen.items() if source == "a")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"steps": 5}, "steps"),
        ({"phases": [Phase(start_step=1, weights={"a": 1.0})]}, "phases"),
        ({"temperature": 2.0}, "temperature"),
    ],
)
def test_what_would_decide_how_often_is_refused(
    recipe: Recipe, options: dict[str, object], name: str
) -> None:
    with pytest.raises(ConfigError, match=f"passes and {name} contradict each other"):
        replace(recipe, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", [{"weight": 0.5}, {"max_epochs": 3}])
def test_weights_and_epochs_of_a_source_are_refused(
    recipe: Recipe, setting: dict[str, object]
) -> None:
    first, *others = recipe.sources
    with pytest.raises(ConfigError, match=f"passes and {next(iter(setting))} contradict"):
        replace(recipe, sources=[replace(first, **setting), *others])  # type: ignore[arg-type]


def test_weights_of_an_evaluation_cannot_be_changed(recipe: Recipe) -> None:
    with pytest.raises(ConfigError, match="whole passes have no weights"):
        Feed(recipe).change_weights({"a": 1.0})


@pytest.mark.parametrize("step", [-1, 10**6])
def test_steps_outside_are_refused(recipe: Recipe, step: int) -> None:
    feed = Feed(recipe)
    for ask in (feed.batch, feed.explain, feed.denominators, feed.locate):
        with pytest.raises(ConfigError, match=r"every row was shown|bad step"):
            ask(step)
