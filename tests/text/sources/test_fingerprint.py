"""The fingerprint moves with the folder, and changes with every byte, name and key."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenreel.text.sources import InMemory, open_source

Writing = Callable[[Path, list[Any]], Path]


@pytest.fixture
def folder(tmp_path: Path, write_lines: Writing) -> Path:
    write_lines(tmp_path / "here" / "a.jsonl", [{"text": "abc"}, {"text": "d"}])
    write_lines(tmp_path / "here" / "b" / "c.jsonl.gz", [{"text": "e"}])
    return tmp_path / "here"


def test_it_moves_with_the_folder(folder: Path, tmp_path: Path) -> None:
    before = open_source(folder).fingerprint()
    shutil.move(folder, tmp_path / "there" / "deep")
    assert open_source(tmp_path / "there" / "deep").fingerprint() == before


def test_it_changes_with_every_single_byte(folder: Path) -> None:
    path = folder / "a.jsonl"
    data = path.read_bytes()
    seen = {open_source(folder).fingerprint()}
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        seen.add(open_source(folder).fingerprint())
    assert len(seen) == len(data) + 1


def test_it_changes_with_a_name_an_order_or_the_key(folder: Path) -> None:
    whole = open_source(folder).fingerprint()
    assert open_source(folder, text_key="body").fingerprint() != whole
    a, b = folder / "a.jsonl", folder / "b" / "c.jsonl.gz"
    assert open_source([a, b]).fingerprint() != open_source([b, a]).fingerprint()
    a.rename(folder / "z.jsonl")
    assert open_source(folder).fingerprint() != whole


def test_choosing_to_skip_after_an_error_keeps_what_was_built(folder: Path) -> None:
    assert open_source(folder, on_bad="skip").fingerprint() == open_source(folder).fingerprint()
    limited = open_source(folder, on_bad="skip", max_record_bytes=5)
    assert limited.fingerprint() != open_source(folder).fingerprint()


def test_memory_is_known_by_its_content_and_an_iterator_is_not() -> None:
    assert InMemory(["a", "b"]).fingerprint() == InMemory(("a", "b")).fingerprint()
    assert InMemory(["a", "b"]).fingerprint() != InMemory(["ab"]).fingerprint()
    assert InMemory(["a", "b"]).fingerprint() != InMemory(["b", "a"]).fingerprint()
    assert InMemory(iter(["a"])).identity()["sha256"] is None
