"""The time line of a run says what the order itself says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.view.looking import feed_of, opened

from tokenreel.feed.feed import Feed
from tokenreel.view.run_facts import MOST_MARKS, reel_facts, reel_stop, target_facts
from tokenreel.view.subject import subject_of


def test_a_recipe_is_told_with_its_sources_phases_and_stores(recipe: Path) -> None:
    facts = opened(recipe).answer("api/target")
    feed = Feed(recipe)
    assert (facts["kind"], facts["fingerprint"]) == ("recipe", feed.fingerprint)
    assert (facts["steps"], facts["reel_stop"], facts["batch_rows"]) == (40, 40, 6)
    assert [source["name"] for source in facts["sources"]] == ["texts", "chats"]
    assert [source["num_rows"] for source in facts["sources"]] == [p.num_rows for p in feed.plans]
    assert facts["phases"] == [
        {"start_step": 20, "ramp_steps": 10, "weights": {"texts": 0.5, "chats": 0.5}}
    ]
    assert [store["fingerprint"] for store in facts["stores"]] == [
        store.fingerprint for store in feed.stores
    ]
    assert facts["has_tokenizer"] is True  # "byte", by what the stores record


def test_a_store_alone_has_no_steps(stores: Path) -> None:
    facts = opened(stores / "chats").answer("api/target")
    assert (facts["kind"], facts["steps"], facts["sources"]) == ("store", None, [])
    assert len(facts["stores"]) == 1


@pytest.mark.parametrize(("start", "stop", "columns"), [(0, 40, 600), (15, 35, 4), (39, 40, 9)])
def test_shares_and_epochs_are_those_of_the_order(
    recipe: Path, start: int, stop: int, columns: int
) -> None:
    feed = Feed(recipe)
    facts = reel_facts(feed, start=start, stop=stop, columns=columns)
    assert facts["borders"][0] == start
    assert facts["borders"][-1] == stop
    assert len(facts["borders"]) == min(columns, stop - start) + 1
    for column in zip(*facts["shares"], strict=True):
        assert sum(column) == pytest.approx(1)
    for border, *epochs in zip(facts["borders"], *facts["epochs"], strict=True):
        assert epochs == pytest.approx(list(feed.epoch_of(border).values()), abs=1e-6)


def test_shares_follow_a_phase_and_its_ramp(recipe: Path) -> None:
    texts = reel_facts(Feed(recipe), start=0, stop=40, columns=40)["shares"][0]
    assert texts[:20] == pytest.approx([0.8] * 20)
    assert texts[25] == pytest.approx(0.8 - 0.3 * 5.5 / 10)
    assert texts[30:] == pytest.approx([0.5] * 10)


def test_phases_ramps_epochs_and_the_end_are_marked(recipe: Path) -> None:
    feed = Feed(recipe)
    marks = reel_facts(feed, start=0, stop=40, columns=10)["marks"]
    assert [mark["step"] for mark in marks] == sorted(mark["step"] for mark in marks)
    told = {(mark["step"], mark["kind"]): mark["text"] for mark in marks}
    assert told[20, "phase"] == "weights texts 0.5, chats 0.5"
    assert (30, "ramp") in told
    assert told[40, "end"] == "the run ends after 40 steps"
    for mark in marks:
        if mark["kind"] == "epoch":
            before, after = (
                list(feed.epoch_of(step).values())[mark["source"]]
                for step in (mark["step"], mark["step"] + 1)
            )
            assert before <= int(mark["text"].split()[-1]) < after


def test_changes_of_weights_are_marked(recipe: Path) -> None:
    feed = Feed(recipe)
    feed.step = 12
    feed.change_weights({"texts": 1, "chats": 3})
    marks = reel_facts(feed, start=0, stop=40, columns=10)["marks"]
    assert [m["text"] for m in marks if m["kind"] == "change"] == [
        "weights changed to texts 1, chats 3"
    ]
    assert target_facts([subject_of(feed, title="s")])["changes"][0]["step"] == 12


def test_a_run_without_end_has_a_horizon_and_bounded_marks(stores: Path) -> None:
    feed = feed_of(stores, "packed chats")
    assert feed.num_steps is None
    horizon = reel_stop(feed)
    assert 2 <= feed.epoch_of(horizon + 1)["s"] <= 3
    far = reel_facts(feed, start=0, stop=10**7, columns=100)
    assert 10 < len(far["marks"]) <= MOST_MARKS
    assert len(far["shares"][0]) == 100


def test_an_evaluation_shows_one_source_after_the_other(stores: Path) -> None:
    feed = feed_of(stores, "packed chats", passes=2)
    facts = reel_facts(feed, start=0, stop=len(feed), columns=10)
    assert facts["epochs"][0][-1] == 2.0
    assert facts["marks"][-1]["text"].startswith(f"the run ends after {len(feed)} steps: every row")
