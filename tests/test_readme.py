"""The code in README.md runs and prints what it says; its commands and files are there."""

from __future__ import annotations

import argparse
import doctest
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from tokenreel.cli.main import full_parser

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
LINES = [line for kind, text in BLOCKS if not kind for line in text.splitlines()]


def commands(program: str) -> list[list[str]]:
    words = [shlex.split(line, comments=True) for line in LINES]
    return [line for line in words if line and line[0] == program]


def write_corpus(folder: Path) -> None:
    """Write what the blocks read: docs/ and chats.jsonl."""
    (folder / "docs").mkdir()
    documents = [{"text": f"Document {n}: " + "word " * (n % 20)} for n in range(200)]
    (folder / "docs/a.jsonl").write_text("\n".join(map(json.dumps, documents)) + "\n")
    chats = [
        {
            "messages": [
                {"role": "user", "content": f"What is {n} + {n}?"},
                {"role": "assistant", "content": f"It is {2 * n}."},
            ]
        }
        for n in range(100)
    ]
    (folder / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)) + "\n")


def test_every_python_block_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    failed, attempted = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert failed == 0
    assert attempted >= 40
    assert all(text.startswith(">>> ") for kind, text in BLOCKS if kind == "python")


@pytest.mark.parametrize("words", commands("tokenreel"), ids=" ".join)
def test_every_command_and_option_is_there(words: list[str]) -> None:
    args = full_parser().parse_args(words[1:])
    assert args.command == words[1]


@pytest.mark.parametrize("words", commands("python") + commands("torchrun"), ids=" ".join)
def test_every_example_takes_what_it_is_given(words: list[str]) -> None:
    at = next(number for number, word in enumerate(words) if word.startswith("examples/"))
    source = (ROOT / words[at]).read_text("utf-8")
    assert all(f'"{word}"' in source for word in words[at + 1 :] if word.startswith("--"))


def test_every_line_of_a_shell_block_is_one_of_these() -> None:
    programs = {shlex.split(line)[0] for line in LINES if line}
    assert programs == {"make", "tokenreel", "python", "torchrun"}
    targets = (ROOT / "Makefile").read_text("utf-8")
    assert all(f"\n{words[1]}: " in targets for words in commands("make"))


def test_the_contracts_live_where_it_says() -> None:
    section = README.partition("## The five contracts")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d{3}) .*\| `([\w.]+)`(?:: (.*?))?(?:;.*)? \|$", section, re.MULTILINE)
    assert [number for number, _, _ in rows] == ["000", "001", "002", "003", "004"]
    for _, module, names in rows:
        found = importlib.import_module(module)
        assert all(hasattr(found, name) for name in re.findall(r"`(\w+)`", names))
    assert (ROOT / "scripts/prepare_data.py").exists()


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_a_command_that_is_not_there_would_be_found() -> None:
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        full_parser().parse_args(["build", "a.jsonl", "--out", "b", "--tokeniser", "byte"])


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = re.findall(r"`((?:[\w.]+/)*[\w.]+(?:/|\.py))`", text)
    missing = [
        n for n in named if not any((r / n).exists() for r in (ROOT / "src/tokenreel", ROOT))
    ]
    assert missing == [] and len(named) > 60
