"""A document is told as the store keeps it, and its showings as `where` finds them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from tests.view.looking import CHATS, EVERY_KIND, PAIRS, TEXTS, feed_of, opened, subject

from tokenreel import Recipe, Source, StoreWriter, open_store
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.view import showings
from tokenreel.view.answers import Answers
from tokenreel.view.row_facts import row_facts
from tokenreel.view.showings import HITS_AT_ONCE, MANY_ROWS, where_facts


def test_a_document_has_its_text_place_and_weights(recipe: Path) -> None:
    answers = opened(recipe)
    facts = answers.answer("api/document/0/3")
    assert "".join(text or "" for text in facts["texts"][:-1]) == TEXTS[3]
    assert facts["texts"][-1] == "<|endoftext|>"
    assert facts["controls"] == [facts["tokens"] - 1]
    assert facts["provenance"] == "texts.jsonl:4 [t3]"
    assert facts["place"]["row"] == 3
    assert set(facts["weights"]) == {1.0}


@pytest.mark.parametrize("size", [1, 5, 64])
def test_a_document_in_pieces_is_the_whole_document(recipe: Path, size: int) -> None:
    answers = opened(recipe)
    whole = answers.answer("api/document/1/7")
    parts = [
        answers.answer("api/document/1/7", [("start", str(at)), ("stop", str(at + size))])
        for at in range(0, whole["tokens"], size)
    ]
    for name in ("ids", "texts", "weights", "controls"):
        assert [item for part in parts for item in part[name]] == whole[name]
    document = open_store(recipe.parent / "chats").document(7)
    assert whole["ids"] == document.tokens.tolist()
    assert whole["weights"] == document.loss_weights.tolist()


def test_a_chat_is_a_conversation_with_its_trained_parts(recipe: Path) -> None:
    facts = opened(recipe).answer("api/document/1/7")
    said = [
        "".join(text or "" for text in facts["texts"][turn["start"] : turn["stop"]])
        for turn in facts["turns"]
    ]
    roles = [turn["role"] for turn in facts["turns"]]
    assert roles == [message["role"] for message in CHATS[7]["messages"]]
    for message, text in zip(CHATS[7]["messages"], said, strict=True):
        assert message["content"] in text
    assert [turn["weight"] for turn in facts["turns"]] == [0.0, 0.0, 1.0]


def test_a_prompt_has_its_record(stores: Path) -> None:
    answers = Answers([subject(feed_of(stores, "prompts"))])
    assert answers.answer("api/document/0/4")["record"]["answer"] == "8"


def test_a_group_of_answers_names_the_preferred_one(stores: Path) -> None:
    answers = Answers([subject(feed_of(stores, "pairs"))])
    facts = answers.answer("api/document/0/2")
    labels = [turn["label"] for turn in facts["turns"] if turn["role"] == "assistant"]
    assert labels == ["preferred", "rejected"]
    assert len(PAIRS) == 12


def test_stored_weights_are_shown(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=9, weights="float32") as writer:
        writer.add([1, 2, 3], weights=[0.5, 0, 2])
    facts = opened(tmp_path / "s").answer("api/store/0/0/document/0")
    assert facts["weights"] == [0.5, 0, 2]
    assert facts["texts"] == [None] * 3


def test_showings_are_those_that_where_finds(recipe: Path) -> None:
    feed = Feed(recipe)
    for source, document in (("texts", 5), ("chats", 11)):
        number = ["texts", "chats"].index(source)
        facts = where_facts(subject(feed), number, document)
        assert facts["hits"] == [asdict(hit) for hit in feed.where(source, document)]
        assert facts["searched"] == {"start": 0, "stop": 40, "goes_on": False}


@pytest.mark.parametrize("kind", [kind for kind in EVERY_KIND if "foreign" not in kind])
def test_a_token_leads_to_its_document_and_back(stores: Path, kind: str) -> None:
    looked_at = subject(feed_of(stores, kind))
    for row in range(4):
        for part in row_facts(looked_at, 2, row)["segments"]:
            hits = where_facts(looked_at, 0, part["document"])["hits"]
            here = [hit for hit in hits if (hit["step"], hit["row"]) == (2, row)]
            assert any(
                hit["start"] <= part["from"] and part["to"] <= hit["stop"] for hit in here
            ), (part, here)


def test_showings_of_a_run_without_end_are_found_page_by_page(stores: Path) -> None:
    feed = feed_of(stores, "packed chats")
    looked_at, start, hits = subject(feed), 0, []
    for _ in range(5):
        facts = where_facts(looked_at, 0, 3, start=start)
        assert facts["more"]
        assert facts["searched"]["start"] == start < facts["searched"]["stop"]
        hits += facts["hits"]
        start = facts["searched"]["stop"]
    assert hits == [asdict(hit) for hit in feed.where("s", 3, stop_step=start)]
    assert len(hits) >= 5


def test_a_long_run_is_searched_in_answers_of_a_bounded_size(stores: Path) -> None:
    feed = feed_of(stores, "packed chats", steps=10**6)
    facts = where_facts(subject(feed), 0, 3)
    assert len(facts["hits"]) == HITS_AT_ONCE
    assert facts["more"]


def test_a_document_of_thousands_of_rows_is_found_step_by_step(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=99) as writer:
        writer.add(np.arange(50) % 99)
        writer.add(np.arange(16_000) % 99)
    source = Source(name="s", path=tmp_path / "s", rows="document_windows")
    feed = Feed(Recipe(seq_len=8, global_batch_size=16, sources=[source]))
    assert len(feed.plans[0].find(1)) > MANY_ROWS
    looked_at, start, hits = subject(feed), 0, []
    for _ in range(3):
        facts = where_facts(looked_at, 0, 1, start=start)
        hits += facts["hits"]
        start = facts["searched"]["stop"]
        assert HITS_AT_ONCE <= len(facts["hits"]) < HITS_AT_ONCE + 32
    expected = [asdict(hit) for hit in feed.where("s", 1, stop_step=start)]
    key = ["step", "row", "start"]
    assert sorted(hits, key=lambda hit: [hit[name] for name in key]) == expected


@pytest.mark.parametrize("kind", [kind for kind in EVERY_KIND if "foreign" not in kind])
def test_rows_looked_for_step_by_step_are_those_of_the_inverse_order(
    stores: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = feed_of(stores, kind, steps=12)
    expected = [feed.where("s", document) for document in range(12)]
    monkeypatch.setattr(showings, "MANY_ROWS", 0)
    for document in range(12):
        hits = where_facts(subject(feed), 0, document)["hits"]
        assert hits == [asdict(hit) for hit in expected[document]]
    assert any(expected)


@pytest.mark.parametrize("path", ["api/document/0/60", "api/where/0/60", "api/document/2/0"])
def test_what_is_not_there_is_refused_with_what_is(recipe: Path, path: str) -> None:
    with pytest.raises(ConfigError, match=r"no such (document|source).*expected 0 to"):
        opened(recipe).answer(path)
