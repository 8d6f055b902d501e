"""The commands about a run: plan, feed, explain, where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenreel import StoreWriter
from tokenreel.cli.main import main
from tokenreel.feed.feed import Feed
from tokenreel.text.tokenizers import byte_tokenizer

TEXTS = ("a first document", "second \x1b[31mred\x1b[0m one", "the third of them", "last")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    with StoreWriter(tmp_path / "s", vocab_size=byte_tokenizer().vocab_size) as writer:
        for text in TEXTS:
            writer.add(list(text.encode()))
    path = tmp_path / "recipe.toml"
    path.write_text(
        "seq_len = 32\nglobal_batch_size = 2\nseed = 7\n"
        f'[[sources]]\nname = "s"\npath = "{tmp_path / "s"}"\nrows = "packed"\n'
    )
    return path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_explain_decodes_where_a_tokenizer_is_given(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = answer(capsys, "explain", str(recipe), "0", "--tokenizer", "byte")["rows"]
    shown = {segment["text"] for row in rows for segment in row["segments"]}
    assert shown == set(TEXTS)
    plain = answer(capsys, "explain", str(recipe), "0")["rows"]
    assert all("text" not in segment for row in plain for segment in row["segments"])


def test_explained_text_cannot_command_the_terminal(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(recipe), "0", "--tokenizer", "byte"]) == 0
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    assert "s⟦econd \\x1b[31mred\\x1b[0m one⟧" in out
    assert "a⟦ first document⟧" in out


def test_explain_shows_one_row_where_asked_for(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(recipe), "0", "--row", "1"]) == 0
    out = capsys.readouterr().out
    assert "row 1" in out
    assert "row 0" not in out


def test_where_leads_to_the_steps_that_show_a_document(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hits = answer(capsys, "where", str(recipe), "s", "2", "--stop-step", "5")["hits"]
    feed = Feed(recipe)
    for hit in hits:
        row = feed.explain(hit["step"]).rows[hit["row"]]
        assert 2 in {segment.document for segment in row.segments}
    assert hits


def test_plan_and_feed_say_what_comes_out(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(recipe)]) == 0
    assert capsys.readouterr().out
    for options in ([], ["--prefetch", "2", "--threads", "2"]):
        facts = answer(capsys, "feed", str(recipe), "--steps", "6", *options)
        assert facts["steps"] == 6
        assert facts["shares"] == {"s": 1.0}
        assert 0 < facts["trained_share"] < 1


def test_an_evaluation_says_what_it_will_show(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = recipe.with_name("evaluation.toml")
    evaluation.write_text(
        recipe.read_text().replace("global_batch_size = 2", "global_batch_size = 4\npasses = 1")
    )
    num_rows = Feed(evaluation).plans[0].num_rows
    assert num_rows % 4
    steps, filled = -(-num_rows // 4), -num_rows % 4
    facts = answer(capsys, "feed", str(evaluation))
    assert facts["steps"] == steps
    assert (facts["rows"], facts["rows_of_padding"]) == (num_rows, filled)
    assert facts["trained_tokens"] == sum(len(text) - 1 for text in TEXTS)
    assert main(["feed", str(evaluation)]) == 0
    assert capsys.readouterr().err == (
        f"an evaluation: each row once, {num_rows} rows in {steps} step; "
        f"the last is filled up with {filled} rows of padding\n"
    )
    assert answer(capsys, "plan", str(evaluation))["steps"] == steps
    assert answer(capsys, "plan", str(recipe))["steps"] is None


def test_a_run_that_ends_of_itself_says_where(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = ["--set", "sources.s.max_epochs=3", "--set", "global_batch_size=4"]
    num_rows = Feed(recipe).plans[0].num_rows
    facts = answer(capsys, "feed", str(recipe), *limited)
    assert facts["steps"] == 3 * num_rows // 4
    assert (
        "source 's' runs out in the next" in answer(capsys, "plan", str(recipe), *limited)["ending"]
    )
    assert main(["feed", str(recipe), *limited, "--start-step", "99"]) != 0
    assert "no step is left" in capsys.readouterr().err
