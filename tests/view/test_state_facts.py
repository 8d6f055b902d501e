"""The state of a stream: how far it is, where it reads on, and what its packers hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.view.looking import feed_of, opened

from tokenreel.errors import ConfigError, DamageError
from tokenreel.stream import StreamPipeline


@pytest.fixture
def state(tmp_path: Path) -> Path:
    pipeline = StreamPipeline(
        {
            "data": {
                "backend": "local_text",
                "local_text": "so it goes. " * 99,
                "tokenizer": {"kind": "byte", "add_eos": True},
            },
            "train": {"seq_len": 16, "batch_size": 2},
        }
    )
    for _ in range(3):
        next(pipeline)
    path = tmp_path / "state.json"
    path.write_text(json.dumps(pipeline.get_state()))
    return path


def test_a_state_tells_batches_places_and_what_is_held(state: Path) -> None:
    saved = json.loads(state.read_text())
    answers = opened(state)
    facts, target = answers.answer("api/state"), answers.answer("api/target")
    assert (target["kind"], target["steps"], target["sources"]) == ("stream_state", None, [])
    assert target["fingerprint"] == saved["fingerprint"]
    assert ["batches made", 3] in facts["facts"]
    (lane,) = facts["lanes"]
    assert lane["epoch"] == saved["lanes"]["0"]["place"]["epoch"]
    assert lane["tokens_held"] > lane["taken"] >= 0
    assert lane["counts"] == saved["lanes"]["0"]["counts"] == facts["counts"]
    assert facts["identity"] == saved["identity"]


def test_a_state_has_no_steps_documents_or_stores(state: Path) -> None:
    answers = opened(state)
    for path in ("api/step/0", "api/reel", "api/document/0/0"):
        with pytest.raises(ConfigError, match=r"there are no steps.*got stream state"):
            answers.answer(path)
    with pytest.raises(ConfigError, match="no such store"):
        answers.answer("api/store/0")
    for query in ("7", "text"):
        with pytest.raises(ConfigError, match="no documents to search"):
            answers.search([("q", query)])


def test_a_recipe_is_no_state(recipe: Path) -> None:
    with pytest.raises(ConfigError, match="no state of a stream"):
        opened(recipe).answer("api/state")


def test_a_damaged_state_is_refused_in_words(state: Path) -> None:
    saved = json.loads(state.read_text())
    saved["lanes"]["0"]["taken"] += 1
    state.write_text(json.dumps(saved))
    with pytest.raises(DamageError, match="changed after it was saved"):
        opened(state).answer("api/state")


def test_the_state_of_a_feed_is_its_run(stores: Path, tmp_path: Path) -> None:
    feed = feed_of(stores, "packed chats", steps=9)
    feed.step = 4
    path = tmp_path / "feed.json"
    path.write_text(json.dumps(feed.state_dict()))
    with pytest.raises(ConfigError, match="cannot be made without its stores"):
        opened(path)
    facts = opened(path, stores=[str(stores / "chats")]).answer("api/target")
    assert (facts["kind"], facts["fingerprint"]) == ("recipe", feed.fingerprint)
