"""Fault 18: inputs changed under the same names and sizes between the runs of a build."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import chats, documents, tree, write_jsonl

from tokenreel.builder.build import build
from tokenreel.errors import MismatchError
from tokenreel.text.chats import load_template
from tokenreel.text.tokenizers import load_tokenizer
from tokenreel.text.tokenizers.train import train_tokenizer


class StopError(Exception):
    """Ends a build in the middle."""


def stop(account: Any) -> None:
    raise StopError


def change_a_byte(path: Path, old: bytes, new: bytes) -> None:
    """Change bytes in place: the same size, the same times."""
    times = path.stat()
    data = path.read_bytes()
    assert old in data and len(old) == len(new)
    path.write_bytes(data.replace(old, new, 1))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def refused(run: Callable[..., Any], field: str, out: Path) -> None:
    before = tree(out)
    with pytest.raises(
        MismatchError, match=f"other settings is here: {field}: .* changed;.*restart=True"
    ) as caught:
        run()
    assert list(caught.value.differing) == [field]
    assert tree(out) == before
    run(restart=True)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(row["text"] for row in documents(100)))
    train_tokenizer([text], out=tmp_path / "tok.json", vocab_size=274, round_to=1)
    return tmp_path / "tok.json"


def test_a_source_file_that_changed_by_one_byte(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(150))

    def run(**options: Any) -> None:
        choices: dict[str, Any] = {"chunk_bytes": 2000, **options}
        build([source], out=tmp_path / "s", tokenizer="byte", **choices)

    with pytest.raises(StopError):
        run(watch=stop)
    change_a_byte(source, b"reel", b"real")
    refused(run, "sources", tmp_path / "s")


def test_a_tokenizer_file_that_changed_by_one_byte(tokenizer: Path, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(150))

    def run(**options: Any) -> None:
        choices: dict[str, Any] = {"chunk_bytes": 2000, "end_token": None, **options}
        build([source], out=tmp_path / "s", tokenizer=tokenizer, **choices)

    with pytest.raises(StopError):
        run(watch=stop)
    text = tokenizer.read_bytes()
    start = text.index(b'"fuse_unk":') + len(b'"fuse_unk":')
    value = text[start : text.index(b",", start)]
    change_a_byte(tokenizer, b'"fuse_unk":' + value, b'"fuse_unk":' + b"true".rjust(len(value)))
    refused(run, "tokenizer", tmp_path / "s")


def test_a_template_that_changed(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "c.jsonl", chats(60))
    first = load_template("chatml")
    second = replace(first, lead=" ")

    def run(template: Any = second, **options: Any) -> None:
        choices: dict[str, Any] = {"chunk_bytes": 1000, "chat": True, **options}
        build([source], out=tmp_path / "s", tokenizer="byte", template=template, **choices)

    with pytest.raises(StopError):
        run(first, watch=stop)
    refused(run, "template", tmp_path / "s")


def test_a_tokenizer_that_changes_while_workers_start_is_refused(
    tokenizer: Path, tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(50))
    opened = load_tokenizer(tokenizer)
    tokenizer.write_bytes(tokenizer.read_bytes().rstrip() + b" ")
    with pytest.raises(MismatchError, match="the tokenizer has changed since it was first opened"):
        build([source], out=tmp_path / "s", tokenizer=opened, workers=2, end_token=None)
