"""feed.widget(): what Python answers to the page's part, through the notebook's messages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store
from tests.view.notebook_side import open_widget

from tokenreel.errors import ConfigError, MismatchError, MissingExtraError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.text.tokenizers import byte_tokenizer
from tokenreel.view import widget as widget_module


@pytest.fixture
def feed(recipe: Path) -> Feed:
    return Feed(recipe)


def test_a_step_is_answered_with_the_rows_of_its_batch(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, notebook = open_widget(feed, monkeypatch)
    batch = feed.batch(27)
    answer = notebook.ask(ask="step", step=27, rows=4, number="view:0")
    assert answer["number"] == "view:0"
    assert answer["summary"]["step"] == 27
    assert answer["summary"]["trained"] == np.count_nonzero(batch.loss_weights)
    assert [row["row"] for row in answer["summary"]["rows"]] == [0, 1, 2, 3]
    for row, part in enumerate(answer["parts"]):
        assert part["ids"] == batch.input_ids[row].tolist()
        assert "".join(text or "" for text in part["texts"])


def test_the_page_knows_the_run_before_it_asks(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.step = 31
    widget, notebook = open_widget(feed, monkeypatch, rows=3)
    assert notebook.state["step"] == widget.step == 31
    assert notebook.state["num_rows"] == 3
    about = notebook.state["about"]
    assert [source["name"] for source in about["sources"]] == ["texts", "chats"]
    assert about["reel"]["borders"][-1] == about["steps"] == 40
    assert [mark["step"] for mark in about["reel"]["marks"] if mark["kind"] == "phase"] == [20]
    assert "export default" in notebook.state["_esm"]
    assert ".chip.trained" in notebook.state["look"]
    assert "--paper" in notebook.state["_css"] and ":root" not in notebook.state["_css"]


def test_step_and_colour_follow_the_page_and_the_page_follows_them(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    widget, notebook = open_widget(feed, monkeypatch)
    notebook.say("update", state={"step": 9, "colour": "segment"})
    assert (widget.step, widget.colour) == (9, "segment")
    widget.step = 12
    assert notebook.state["step"] == 12
    assert feed.step == 0, "looking does not move the feed"


def test_the_rest_of_a_long_row_is_sent_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path / "s", [40_000])
    source = Source(name="s", path=tmp_path / "s")
    feed = Feed(recipe_of(source, seq_len=4096, global_batch_size=512))
    _, notebook = open_widget(feed, monkeypatch)
    first = notebook.ask(ask="step", step=3, rows=8)
    assert len(first["parts"]) == 8 and len(json.dumps(first)) < 300_000
    assert (first["parts"][2]["stop"], first["parts"][2]["width"]) == (512, 4096)
    next_part = notebook.ask(ask="row", step=3, row=2, start=512)["part"]
    assert (next_part["start"], next_part["stop"]) == (512, 1024)
    assert next_part["ids"] == feed.batch(3).input_ids[2, 512:1024].tolist()


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ({"ask": "step", "step": 40, "rows": 8}, "the run ends after 40 steps"),
        ({"ask": "step", "step": -1, "rows": 8}, "bad step (expected a whole number from 0 on"),
        ({"ask": "step", "step": "<b>", "rows": 8}, "bad step"),
        ({"ask": "step", "step": True, "rows": 8}, "bad step"),
        ({"ask": "row", "step": 0, "row": 6, "start": 0}, "no such row in the step"),
        ({"ask": "files", "step": 0}, "no such question (expected step or row"),
        ({}, "bad step"),
    ],
)
def test_a_wrong_question_is_answered_with_what_was_expected(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, question: dict, told: str
) -> None:
    _, notebook = open_widget(feed, monkeypatch)
    answer = notebook.ask(**question, number="view:7")
    assert answer["number"] == "view:7"
    assert told in answer["error"]["message"]


def test_a_step_that_the_run_does_not_have_is_refused_at_once(feed: Feed) -> None:
    with pytest.raises(ConfigError, match="the run ends after 40 steps"):
        feed.widget(40)
    with pytest.raises(ConfigError, match="bad rows"):
        feed.widget(rows=0)


def test_another_tokenizer_is_refused_unless_it_is_insisted_upon(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = byte_tokenizer(["<other>"])
    with pytest.raises(MismatchError, match="of another tokenizer"):
        feed.widget(tokenizer=other)
    _, notebook = open_widget(feed, monkeypatch, tokenizer=other, force_tokenizer=True)
    answer = notebook.ask(ask="step", step=0, rows=1)
    assert any(text for text in answer["parts"][0]["texts"])


def test_without_anywidget_the_error_says_what_to_install(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    widget_module._widget_kind.cache_clear()
    with pytest.raises(MissingExtraError, match=r'pip install "tokenreel\[widget\]"'):
        feed.widget()


def test_the_script_is_one_module_that_asks_for_nothing() -> None:
    script = widget_module.script()
    assert script.count("export default { render: module_widget.render };") == 1
    for word in ("import ", "fetch(", "XMLHttpRequest", "innerHTML", "http:", "https:", "eval("):
        assert word not in script.replace("http://www.w3.org/2000/svg", ""), word
