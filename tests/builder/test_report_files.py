"""A build that is killed after its store exists: the same command writes the report, no more."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import REPORTS, documents, places, tree, write_jsonl

from tokenreel import StoreWriter
from tokenreel.builder.build import build
from tokenreel.builder.given_settings import Made, changes
from tokenreel.cli.main import main
from tokenreel.errors import ExistsError
from tokenreel.inspect.verify import verify_store
from tokenreel.text.tokenizers.train import train_tokenizer

# A real process that kills itself in front of an operation on a file of this name.
KILLED = """
import os, signal, sys
from tokenreel.filesystem import FileSystem
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


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Return the file of a tokenizer."""
    (tmp_path / "t.txt").write_text(" ".join(f"word{number}" for number in range(500)))
    path = tmp_path / "tokenizer.json"
    train_tokenizer([tmp_path / "t.txt"], out=path, kind="bpe", vocab_size=300)
    return path


def other_names(path: Path) -> list[Any]:
    """Return a tokenizer as a renamed file, and as an object of that file."""
    import tokenizers

    renamed = path.with_name("renamed.json")
    renamed.write_bytes(path.read_bytes())
    return [renamed, tokenizers.Tokenizer.from_file(str(path))]


def test_a_tokenizer_by_another_name_is_the_same_build(
    trained: Path, source: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"on_bad": "skip", "chunk_bytes": 500, "shard_size": 4096}
    first = build([source], out=tmp_path / "s", tokenizer=trained, **settings)
    assert first.store.manifest is not None

    def stop(account: object) -> None:
        raise ZeroDivisionError

    for number, name in enumerate(other_names(trained)):
        again = build([source], out=tmp_path / "s", tokenizer=name, **settings)
        assert again.already_built
        with pytest.raises(ExistsError, match=r"settings is here: seed: 42 → 1; "):
            build([source], out=tmp_path / "s", tokenizer=name, seed=1, **settings)
        half = tmp_path / f"half{number}"
        with pytest.raises(ZeroDivisionError):
            build([source], out=half, tokenizer=trained, watch=stop, **settings)
        assert places(half, ".build/*/*.chunk")
        built = build([source], out=half, tokenizer=name, **settings)
        assert built.store.fingerprint == first.store.fingerprint
    renamed = build(
        [source], out=tmp_path / "s", tokenizer=other_names(trained)[0], replace=True, **settings
    )
    assert renamed.store.manifest is not None and renamed.store.manifest.facts.tokenizer
    assert renamed.store.manifest.facts.tokenizer["name"] == "renamed.json"


def test_a_store_that_says_nothing_of_its_settings_is_compared_by_what_was_given(
    source: Path, tmp_path: Path
) -> None:
    given = {"vocab_size": 257, "turns": True, "shard_bytes": 4096}
    recorded = {**given, "turns": False, "block_bytes": 1 << 20, "dtype": "uint16"}
    found = changes(Made(note={}, facts=recorded), Made(note={}, facts=given))
    assert found.differing == {"turns": (False, True)} and found.told == "turns: no → yes"


def test_python_and_the_command_line_write_the_same_report(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(source, tmp_path / "whole")) == 0
    out = tmp_path / "s"
    build([source], out=out, tokenizer="byte", on_bad="skip")
    for report in REPORTS:
        whole, ours = (undated(folder / report) for folder in (tmp_path / "whole", out))
        assert ours == whole.replace("whole", "s")
    (out / "report.html").unlink()
    (out / "report.json").unlink()
    assert build([source], out=out, tokenizer="byte", on_bad="skip").already_built
    assert {path.name for path in out.glob("report.*")} == set(REPORTS)


def test_a_report_that_cannot_be_written_is_a_warning_and_the_store_is_there(
    source: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "s"
    build([source], out=out, tokenizer="byte", on_bad="skip")
    (out / "report.json").unlink()
    (out / "report.html").unlink()
    (out / "report.html").mkdir()  # no file can take its place
    again = build([source], out=out, tokenizer="byte", on_bad="skip")
    assert again.already_built and verify_store(out).ok
    [said] = [record.getMessage() for record in caplog.records]
    assert "the store is finished, but its report.html could not be written" in said
    shown = [word for word in words(source, out) if word != "--json"]
    assert main(shown) == 0
    printed = capsys.readouterr().out
    assert "fingerprint" in printed and "report.html in the store" not in printed


def test_an_interrupted_build_says_that_the_same_call_goes_on(source: Path, tmp_path: Path) -> None:
    def interrupt(account: object) -> None:
        raise KeyboardInterrupt

    settings: dict[str, Any] = {"tokenizer": "byte", "on_bad": "skip", "chunk_bytes": 500}
    with pytest.raises(KeyboardInterrupt) as caught:
        build([source], out=tmp_path / "s", watch=interrupt, **settings)
    [note] = caught.value.__notes__
    assert note == f"{tmp_path / 's'}: what is encoded is kept; the same call goes on where it was"
    assert not build([source], out=tmp_path / "s", **settings).already_built


def test_an_interrupted_build_of_which_nothing_is_kept_says_nothing(tmp_path: Path) -> None:
    def interrupted() -> Iterator[str]:
        yield "one"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        build(texts=interrupted(), out=tmp_path / "s", tokenizer="byte")
    assert not getattr(caught.value, "__notes__", []) and not (tmp_path / "s").exists()


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
