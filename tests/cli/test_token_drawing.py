"""Tokens in a terminal: told by colour where there is some, by marks where there is none."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tokenreel
from tokenreel.cli.main import main
from tokenreel.cli.token_drawing import FIRST_TOKENS, LAST_TOKENS
from tokenreel.feed.feed import Feed
from tokenreel.text.tokenizers import load_tokenizer

SPOOF = "◆<|im_end|>⟦trained⟧ \x1b[32mgreen\x1b[0m \x9b31m \u202e"
CHAT = [{"role": "user", "content": SPOOF}, {"role": "assistant", "content": "it is\n\tfour"}]
LONG = "word " * 100


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    tokenreel.build(chats=[CHAT], out=folder / "chat", tokenizer="byte", progress=False)
    tokenreel.build(texts=[LONG], out=folder / "text", tokenizer="byte", progress=False)
    (folder / "r.toml").write_text(
        "seq_len = 600\nglobal_batch_size = 2\nsteps = 40\nseed = 1\n"
        '[[sources]]\nname = "chat"\npath = "chat"\nrows = "packed"\n'
        '[[sources]]\nname = "text"\npath = "text"\nrows = "packed"\n'
    )
    return folder / "r.toml"


@pytest.fixture
def colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "2000")
    monkeypatch.delenv("NO_COLOR", raising=False)


def told(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([*map(str, words)]) == 0
    return capsys.readouterr().out


def test_what_is_in_brackets_is_what_the_batch_trains(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = told(capsys, "explain", recipe, 0, "--all")
    feed, tokenizer = Feed(recipe), load_tokenizer("byte")
    batch = feed.batch(0)
    shown = {tokenizer.decode(batch.labels[row][batch.loss_weights[row] > 0]) for row in range(2)}
    drawn = {
        re.sub(r"\n    ", "\n", part).replace("◆", "").replace("\\t", "\t")
        for part in re.findall(r"⟦(.*?)⟧", out.rsplit("(", 1)[0], flags=re.DOTALL)
    }
    assert drawn == shown
    assert out.endswith("(⟦trained⟧, context, ◆control)\n")


def test_no_stored_text_looks_like_structure_or_commands_the_terminal(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["explain", recipe, "0", "--all"],
        ["show", recipe.parent / "chat", "--document", "0"],
    ):
        out = told(capsys, *words)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out)
        assert r"\u25c6<|im_end|>\u27e6trained\u27e7 \x1b[32mgreen\x1b[0m \x9b31m" in out
        assert out.count("◆<|im_end|>") == 2  # those that the template made


def test_on_a_terminal_trained_tokens_are_green_and_underlined_and_control_ids_are_not_text(
    recipe: Path, capsys: pytest.CaptureFixture[str], colour: None
) -> None:
    for words in (
        ["explain", recipe, "0", "--all"],
        ["show", recipe.parent / "chat", "--document", "0"],
    ):
        out = told(capsys, *words)
        assert "\x1b[4;32mit is" in out and "⟦it" not in out
        assert "\x1b[1;4;35m◆<|im_end|>\x1b[0m" in out, "trained"
        assert "\x1b[35m◆<|im_end|>\x1b[0m" in out, "context"
        assert out.endswith(
            "(\x1b[4;32mtrained\x1b[0m, context, \x1b[35m◆control\x1b[0m, "
            "\x1b[1;4;35m◆trained control\x1b[0m)\n"
        )
        # The escapes are ours alone: those of the text are spelled out.
        assert not re.search(r"\x1b(?!\[[\d;]*m)", out) and r"\x1b[32mgreen" in out


def test_no_color_wins_over_a_terminal(
    recipe: Path, capsys: pytest.CaptureFixture[str], colour: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (["explain", recipe, "0"], ["plan", recipe], ["show", recipe.parent / "chat"]):
        out = told(capsys, *words)
        assert not re.search(r"\x1b\[[\d;]*3\d", out), "no colour, whatever is bold"
    assert "⟦" in told(capsys, "explain", recipe, "0")


def test_a_pipe_gets_no_escapes(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["explain", recipe, "0"], ["plan", recipe], ["show", recipe.parent / "chat"]):
        assert "\x1b" not in told(capsys, *words)


def test_a_real_terminal_gets_colour(recipe: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        environment.pop(name, None)
    words = [sys.executable, "-m", "tokenreel", "show", str(recipe.parent / "chat")]
    with subprocess.Popen(words, stdout=theirs, stdin=theirs, env=environment):
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 1 << 16):
                seen += part
        except OSError:  # the other end was closed
            pass
    os.close(ours)
    assert b"\x1b[35m\xe2\x97\x86<|im_start|>\x1b[0m" in seen


def test_a_long_segment_is_shortened_in_its_middle_and_all_of_it_shown_on_request(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(told(capsys, "explain", recipe, 0, "--json"))["rows"]
    row = next(row["row"] for row in rows if row["source"] == "text")
    short = told(capsys, "explain", recipe, 0, "--row", row)
    left = len(LONG) + 1 - FIRST_TOKENS - LAST_TOKENS
    assert f"⟧ … {left} tokens … ⟦" in short
    assert short.count("word") < 20
    assert short.splitlines()[2].endswith("word ◆<|endoftext|>⟧")
    whole = told(capsys, "explain", recipe, 0, "--row", row, "--all")
    assert "…" not in whole and whole.count("ord") == 100


def test_explain_finds_the_tokenizer_that_the_store_records(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "explain", recipe, 0) == told(
        capsys, "explain", recipe, 0, "--tokenizer", "byte"
    )


def test_without_a_tokenizer_rows_are_explained_and_the_flag_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tokenreel.StoreWriter(tmp_path / "s", vocab_size=300) as writer:
        writer.add(list(range(50)))
    (tmp_path / "r.toml").write_text(
        'seq_len = 9\nglobal_batch_size = 1\n[[sources]]\nname = "s"\npath = "s"\n'
    )
    assert main(["explain", str(tmp_path / "r.toml"), "0"]) == 0
    captured = capsys.readouterr()
    assert "9 trained" in captured.out and "⟦" not in captured.out
    assert captured.err == "give --tokenizer to see the tokens\n"


def test_a_document_is_shown_whole_with_what_is_trained_of_it(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = recipe.parent / "chat"
    out = told(capsys, "show", store, "--document", 0)
    assert out.startswith("train 0  ")
    assert "◆<|im_start|>assistant\n⟦it is\n\\tfour◆<|im_end|>⟧\n" in out
    facts = json.loads(told(capsys, "show", store, "--document", 0, "--json"))["document"]
    document = tokenreel.open_store(store).document(0)
    assert facts["ids"] == document.tokens.tolist()
    assert facts["weights"] == document.loss_weights.tolist()
    for words, wrong in (
        (["--document", "1"], "split train has no such document (expected 0 to 0, got 1)"),
        (["--document", "-1"], "split train has no such document (expected 0 to 0, got -1)"),
        (["--split", "val"], "no split 'val' (expected train)"),
    ):
        assert main(["show", str(store), *words]) == 2
        assert wrong in capsys.readouterr().err


def test_a_plan_gives_each_source_a_colour_and_trained_its_own(
    recipe: Path, capsys: pytest.CaptureFixture[str], colour: None
) -> None:
    out = told(capsys, "plan", recipe)
    assert re.search(r"chat \x1b\[34m█+\x1b\[0m", out)
    assert re.search(r"text \x1b\[33m█+\x1b\[0m", out)
    assert out.count("\x1b[4;32mtrained\x1b[0m") == 2
    assert "\x1b[1;33mwarning:\x1b[0m" in out
