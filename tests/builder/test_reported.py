"""A build that is killed after its store exists: the same command writes the report, no more."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import REPORTS, documents, places, tree, write_jsonl

from tokenreel import StoreWriter
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
    return write_jsonl(tmp_path / "d.jsonl", [*documents(60), {"text": None}])


def undated(page: Path) -> str:
    """Return a page without the time at which its store was finished."""
    return re.sub(r"[\d-]+ [\d:]+ UTC", "then", page.read_text())


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
    said = json.loads(capsys.readouterr().out)
    assert said == {**expected, "path": str(out), "already_built": True}
    assert places(out, "*/shard_*") | places(out, "manifest.json") == before
    assert tree(out) == tree(tmp_path / "whole")
    for report in REPORTS:
        whole, ours = (undated(folder / report) for folder in (tmp_path / "whole", out))
        assert ours == whole.replace("whole", "s")
    assert not [path for path in out.rglob("*") if path.suffix == ".tmp"]
    reports = places(out, "report.*")
    assert main(words(source, out)) == 0  # and now there is nothing at all to be written
    assert places(out, "report.*") == reports


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
    assert {**json.loads((out / "report.json").read_text()), "already_built": True} == report
    assert places(out, "*/shard_*") == before


def test_a_build_that_is_finished_is_returned_as_it_is(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "s"
    first = build([source], out=out, tokenizer="byte", on_bad="skip")
    before = places(out, "**/*")
    again = build([source], out=out, tokenizer="byte", on_bad="skip", workers=2, restart=True)
    assert (first.already_built, again.already_built) == (False, True)
    assert again.report == first.report and again.store.fingerprint == first.store.fingerprint
    assert places(out, "**/*") == before
    replaced = build([source], out=out, tokenizer="byte", on_bad="skip", replace=True)
    assert not replaced.already_built


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": 1}, "seed: 42 → 1"),
        ({"provenance": False}, "provenance: yes → no"),
        ({"shard_size": 4096}, "shard_size: 134217728 → 4096"),
        ({"text_key": "id", "min_tokens": 2}, 'text_key: "text" → "id", min_tokens: 1 → 2'),
        ({"end_token": None}, 'end_token: "<|endoftext|>" → none'),
    ],
)
def test_a_finished_store_of_other_settings_is_refused_with_what_differs(
    changed: dict[str, Any], told: str, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "s"
    build([source], out=out, tokenizer="byte", on_bad="skip")
    before = tree(out)
    with pytest.raises(ExistsError) as caught:
        build([source], out=out, tokenizer="byte", on_bad="skip", **changed)
    assert f"a finished store of other settings is here: {told}; " in str(caught.value)
    assert "replace=True" in str(caught.value)
    assert tree(out) == before


def test_a_finished_store_of_other_documents_is_refused(source: Path, tmp_path: Path) -> None:
    build([source], out=tmp_path / "s", tokenizer="byte", on_bad="skip")
    with source.open("a") as file:
        file.write('{"text": "one more"}\n')
    with pytest.raises(ExistsError, match=r"sources: what they hold has changed; .*replace=True"):
        build([source], out=tmp_path / "s", tokenizer="byte", on_bad="skip")
    build(texts=iter(["one", "two"]), out=tmp_path / "t", tokenizer="byte")
    with pytest.raises(ExistsError, match="an iterator does not say whether it gives the same"):
        build(texts=iter(["one", "two"]), out=tmp_path / "t", tokenizer="byte")
    with StoreWriter(tmp_path / "u", vocab_size=9) as writer:
        writer.add([1, 2, 3])
    with pytest.raises(ExistsError, match="a finished store is here, which was not built so"):
        build([source], out=tmp_path / "u", tokenizer="byte", on_bad="skip")


def test_the_report_has_the_settings_as_they_were_given_and_picked(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    given = build(source.name, out="s", tokenizer="byte", on_bad="skip", val_frac=0.5)
    settings = given.report["settings"]
    assert settings["sources"] == source.name and settings["tokenizer"] == "byte"
    assert (settings["val_frac"], settings["seed"], settings["on_bad"]) == (0.5, 42, "skip")
    assert (settings["text_key"], settings["end_token"]) == ("text", "<|endoftext|>")
    assert not {"template", "workers", "out", "progress"} & set(settings)
    away = build([source], out="t", tokenizer="byte", on_bad="skip")
    assert away.report["settings"]["sources"] == [source.name]  # no folder of this machine
    turns = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "Yes."}]
    chat = build(chats=[turns], out="c", tokenizer="byte").report["settings"]
    assert (chat["template"], chat["policy"], chat["chat"]) == ("chatml", "assistant", True)
