"""A build that is killed after its store exists: the same command writes the report, no more."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import REPORTS, documents, places, tree, write_jsonl

from tokenreel.builder.build import build
from tokenreel.cli.main import main
from tokenreel.errors import ExistsError

# A real process that kills itself in front of an operation on a file of this name.
KILLED = """
import os, signal, sys
from tokenreel.store.filesystem import FileSystem
from tokenreel.cli.main import main
operation, name = sys.argv[1:3]
observe = FileSystem.observe
def kill_here(self, done, path, *, target=None):
    if done == operation and name in (path.name, target and target.name):
        os.kill(os.getpid(), signal.SIGKILL)
    observe(self, done, path, target=target)
FileSystem.observe = kill_here
main(sys.argv[3:])
"""
LATE = [
    ("remove", "plan.json"),
    ("create", "report.html.tmp"),
    ("rename", "report.json"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "d.jsonl", [*documents(60), {"text": "nul \0"}])


def words(source: Path, out: Path, *more: str) -> list[str]:
    options = ["--tokenizer", "byte", "--workers", "1", "--on-bad", "skip", "--json", *more]
    return ["build", str(source), "--out", str(out), *options]


@pytest.mark.parametrize(("operation", "name"), LATE)
def test_the_same_command_writes_the_report_and_builds_nothing(
    operation: str, name: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(source, tmp_path / "whole")) == 0
    expected = json.loads(capsys.readouterr().out)
    out = tmp_path / "s"
    killed = subprocess.run([sys.executable, "-c", KILLED, operation, name, *words(source, out)])
    assert killed.returncode == -signal.SIGKILL
    before = places(out, "*/shard_*") | places(out, "manifest.json")
    assert before and not (out / "report.json").exists()
    assert main(words(source, out)) == 0
    assert json.loads(capsys.readouterr().out) == {**expected, "path": str(out)}
    assert places(out, "*/shard_*") | places(out, "manifest.json") == before
    assert tree(out) == tree(tmp_path / "whole")
    for report in REPORTS:
        text = (tmp_path / "whole" / report).read_text()
        assert (out / report).read_text() == text.replace("whole", "s")
    assert not [path for path in out.rglob("*") if path.suffix == ".tmp"]
    assert main(words(source, out)) == 1
    assert "a finished store is here" in capsys.readouterr().err


def test_the_report_of_a_store_that_was_replaced_is_not_taken_for_that_of_the_new(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s"
    assert main(words(source, out, "--seed", "1")) == 0
    new = words(source, out, "--val-frac", "0.5")
    killed = subprocess.run([sys.executable, "-c", KILLED, *LATE[1], *new, "--replace"])
    assert killed.returncode == -signal.SIGKILL
    before, old = places(out, "*/shard_*"), json.loads((out / "report.json").read_text())
    capsys.readouterr()
    assert main(new) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fingerprint"] != old["fingerprint"] and set(report["splits"]) == {"train", "val"}
    assert json.loads((out / "report.json").read_text()) == report
    assert places(out, "*/shard_*") == before


def test_only_the_very_same_build_is_kept(source: Path, tmp_path: Path) -> None:
    out, options = tmp_path / "s", {"on_bad": "skip"}
    first = build([source], out=out, tokenizer="byte", source_options=options)
    again = build([source], out=out, tokenizer="byte", source_options=options, keep=True)
    assert again.report == first.report and again.store.fingerprint == first.store.fingerprint
    others: list[dict[str, Any]] = [{"seed": 1}, {"provenance": False}, {"shard_bytes": 4096}]
    for changed in (*others, {"keep": False}):
        with pytest.raises(ExistsError, match="a finished store is here"):
            choices = {"keep": True, **changed}
            build([source], out=out, tokenizer="byte", source_options=options, **choices)
    with source.open("a") as file:
        file.write('{"text": "one more"}\n')
    with pytest.raises(ExistsError, match="a finished store is here"):
        build([source], out=out, tokenizer="byte", source_options=options, keep=True)
    texts = ["one", "two"]
    build(texts=iter(texts), out=tmp_path / "t", tokenizer="byte")
    with pytest.raises(ExistsError, match="a finished store is here"):  # who knows what it gives
        build(texts=iter(texts), out=tmp_path / "t", tokenizer="byte", keep=True)
