"""Property 18: every piece of every batch leads to its document, every document to its steps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel import Provenance
from tokenreel.errors import ConfigError, StoreError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.feed.trace import Segment
from tokenreel.text.tokenizers import adapt

STEPS = 40


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("traced")
    write_store(folder / "web", [13, 0, 41, 5, 1, 30], shard_tokens=16)
    write_store(folder / "first", [12, 25, 3, 1, 40], shard_tokens=20, first_token=1000)
    write_store(folder / "last", [12, 25, 3, 18, 7], sidecar="turns", first_token=2000)
    write_store(folder / "books", [40, 2, 0, 33], shard_tokens=20, first_token=3000)
    write_store(folder / "packed", [4, 3, 19, 2, 5, 6], shard_tokens=10, first_token=4000)
    sources = (
        Source(name="web", path=folder / "web", weight=0.4),
        Source(name="first", path=folder / "first", rows="episodes", weight=0.2),
        Source(
            name="last", path=folder / "last", rows="episodes", truncation="keep_last", weight=0.1
        ),
        Source(name="books", path=folder / "books", rows="document_windows", weight=0.2),
        Source(name="packed", path=folder / "packed", rows="packed", weight=0.1),
    )
    phases = [Phase(start_step=5, weights={"web": 1, "books": 1, "packed": 2}, ramp_steps=10)]
    return recipe_of(*sources, seq_len=7, global_batch_size=6, phases=phases)


def shown_tokens(feed: Feed, segment: Segment) -> list[int]:
    number = [source.name for source in feed.recipe.sources].index(segment.source)
    split = feed.plans[number].split
    assert segment.document is not None
    return split.document(segment.document).tokens[segment.start : segment.stop].tolist()


def test_what_follows_a_document_of_two_shards_in_its_row_is_explained_too(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [18, 6], shard_tokens=16)
    for rows in ("windows", "document_windows"):
        source = Source(name="s", path=tmp_path / "s", rows=rows, shuffle=False)
        row = Feed(recipe_of(source, seq_len=23, global_batch_size=1)).explain(0).rows[0]
        shown = [(segment.document, segment.start, segment.stop) for segment in row.segments]
        assert shown == [(0, 0, 18), (1, 0, 6)]


def test_explain_says_token_for_token_what_a_batch_shows(recipe: Recipe) -> None:
    feed = Feed(recipe)
    for step in range(STEPS):
        batch = feed.batch(step)
        explained = feed.explain(step)
        assert explained.step == step
        assert [row.row for row in explained.rows] == list(range(6))
        for row in explained.rows:
            tokens = [token for s in row.segments for token in shown_tokens(feed, s)]
            length = int(np.count_nonzero(batch.segment_ids[row.row]))
            assert batch.input_ids[row.row][:length].tolist() == tokens[:length]
            assert len(tokens) - length in (0, 1)
            trained = int(np.count_nonzero(batch.loss_weights[row.row]))
            assert sum(segment.trained for segment in row.segments) == trained
            assert {segment.source for segment in row.segments} == {row.source}


def test_where_finds_exactly_the_steps_that_show_a_document(recipe: Recipe) -> None:
    feed = Feed(recipe)
    shown: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    for step in range(STEPS):
        for row in feed.explain(step).rows:
            for s in row.segments:
                assert s.document is not None
                hit = (row.epoch, step, row.row, s.start, s.stop)
                shown.setdefault((s.source, s.document), set()).add(hit)
    for source, plan in zip(recipe.sources, feed.plans, strict=True):
        for document in range(int(plan.split.document_starts[-1])):
            hits = feed.where(source.name, document, stop_step=STEPS)
            found = [(h.epoch, h.step, h.row, h.start, h.stop) for h in hits]
            assert len(found) == len(set(found))
            assert set(found) == shown.get((source.name, document), set())
            later = feed.where(source.name, document, start_step=17, stop_step=23)
            assert later == [hit for hit in hits if 17 <= hit.step < 23]


def test_where_finds_a_document_after_a_change_of_weights(recipe: Recipe) -> None:
    feed = Feed(recipe)
    feed.step = 9
    feed.change_weights({"first": 1, "books": 1})
    feed.step = 20
    feed.change_weights({"web": 1, "first": 0.5})
    for step in (8, 9, 15, 19, 20, 30):
        for row in feed.explain(step).rows:
            for s in row.segments:
                assert s.document is not None
                hits = feed.where(s.source, s.document, start_step=step, stop_step=step + 1)
                assert (row.row, s.start, s.stop) in {(h.row, h.start, h.stop) for h in hits}


def test_where_reaches_far_without_walking_there(recipe: Recipe) -> None:
    feed = Feed(recipe)
    row = feed.explain(10**9).rows[0]
    segment = row.segments[0]
    assert segment.document is not None
    hits = feed.where(segment.source, segment.document, start_step=10**9, stop_step=10**9 + 1)
    assert (row.epoch, row.row) in {(hit.epoch, hit.row) for hit in hits}


def test_without_a_stop_the_epoch_under_way_and_the_next_are_searched(recipe: Recipe) -> None:
    feed = Feed(recipe)
    hits = feed.where("web", 0, start_step=12)
    assert hits
    assert min(hit.step for hit in hits) >= 12


def test_without_a_stop_a_run_that_ends_is_searched_to_its_end(recipe: Recipe) -> None:
    feed = Feed(replace(recipe, steps=60))
    assert feed.epoch_of(60)["web"] > 3
    hits = feed.where("web", 0)
    assert hits == feed.where("web", 0, stop_step=60)
    assert {hit.epoch for hit in hits} >= {0, 1, 2}


def test_before_its_start_nothing_is_found(recipe: Recipe) -> None:
    for stop in (-5, 0, 7):
        assert Feed(recipe).where("web", 0, start_step=7, stop_step=stop) == []


def test_provenance_is_that_of_the_document(recipe: Recipe) -> None:
    feed = Feed(recipe)
    for row in feed.explain(3).rows:
        for s in row.segments:
            assert s.provenance == Provenance(file=f"{s.source}.jsonl", row=s.document)


def test_an_episode_names_its_document(recipe: Recipe) -> None:
    rows = [row for step in range(9) for row in Feed(recipe).explain(step).rows]
    for row in rows:
        if row.source in ("first", "last"):
            assert row.document == row.segments[0].document
    assert any(row.document is None for row in rows if row.source == "web")


def test_an_explanation_is_ready_for_json(recipe: Recipe) -> None:
    explained = Feed(recipe).explain(2)
    again = json.loads(json.dumps(explained.as_dict()))
    assert again["step"] == 2
    first = again["rows"][0]["segments"][0]
    assert set(first) == {"source", "document", "start", "stop", "trained", "provenance"}


def test_a_stream_without_documents_is_explained_by_positions(tmp_path: Path) -> None:
    np.arange(100, dtype="<u2").tofile(tmp_path / "train.bin")
    source = Source(name="a", path=tmp_path / "train.bin", dtype="uint16", shuffle=False)
    feed = Feed(recipe_of(source, seq_len=9, global_batch_size=2))
    (segment,) = feed.explain(1).rows[1].segments
    assert (segment.document, segment.start, segment.stop) == (None, 27, 37)
    with pytest.raises(StoreError, match="the documents of this split are not known"):
        feed.where("a", 0)


def test_windows_over_tokens_of_no_document_are_explained_by_positions(tmp_path: Path) -> None:
    np.arange(20, dtype="<u4").tofile(tmp_path / "tokens.bin")
    np.array([[0, 8], [12, 8]], "<u8").tofile(tmp_path / "episodes.idx")
    source = Source(name="a", path=tmp_path, shuffle=False)
    feed = Feed(recipe_of(source, seq_len=19, global_batch_size=1))
    (segment,) = feed.explain(0).rows[0].segments
    assert (segment.document, segment.start, segment.stop) == (None, 0, 20)


def test_what_does_not_exist_is_not_looked_for(recipe: Recipe) -> None:
    feed = Feed(recipe)
    with pytest.raises(ConfigError) as caught:
        feed.where("wbe", 0)
    assert str(caught.value) == (
        "no such source (expected web, first, last, books, packed, got 'wbe'); did you mean 'web'?"
    )
    for document in (-1, 6):
        with pytest.raises(
            ConfigError, match=r"source 'web' has no such document \(expected 0 to 5"
        ):
            feed.where("web", document)
    with pytest.raises(ConfigError, match="bad start_step"):
        feed.where("web", 0, start_step=-1)
    with pytest.raises(ConfigError, match=r"bad step \(expected >= 0, got -1\)"):
        feed.explain(-1)
    with pytest.raises(ConfigError, match=r"bad step \(expected >= 0, got -1\)"):
        feed.epoch_of(-1)


class Spelled:
    """A decoder that spells ids out."""

    vocab_size = 2**16

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def special_token_ids(self) -> dict[str, int]:
        return {}

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


def test_segments_are_decoded_on_request(recipe: Recipe) -> None:
    feed = Feed(recipe)
    for step in range(12):
        plain, decoded = feed.explain(step), feed.explain(step, tokenizer=adapt(Spelled()))
        for row, same in zip(plain.rows, decoded.rows, strict=True):
            for segment, spelled in zip(row.segments, same.segments, strict=True):
                assert segment.text is None
                assert spelled.text == " ".join(map(str, shown_tokens(feed, segment)))
                assert replace(spelled, text=None) == segment
                assert spelled.as_dict() == {**segment.as_dict(), "text": spelled.text}


def test_every_step_that_has_a_batch_is_explained_also_behind_the_run(recipe: Recipe) -> None:
    short, long = Feed(replace(recipe, steps=2)), Feed(recipe)
    for step in (2, 9):
        assert (short.batch(step).input_ids == long.batch(step).input_ids).all()
        assert short.explain(step) == long.explain(step)


@pytest.mark.parametrize("step", [1.5, "1", True, None])
def test_a_step_that_is_no_whole_number_is_refused(recipe: Recipe, step: Any) -> None:
    feed = Feed(recipe)
    for call in (feed.explain, feed.batch, feed.locate):
        with pytest.raises(ConfigError, match=r"bad step \(expected a whole number, got "):
            call(step)


def test_a_feed_is_made_of_a_recipe(recipe: Recipe) -> None:
    store: Any = Feed(recipe).stores[0]
    with pytest.raises(ConfigError) as caught:
        Feed(store)
    assert str(caught.value).startswith(
        "bad recipe (expected a Recipe, or the path of a file with one, got a Store); make one: "
    )
