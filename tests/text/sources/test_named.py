"""Named sources: defaults as the contract has them, all overridable; folders and their split."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenreel.errors import ConfigError, InputError
from tokenreel.text.sources import Record, open_source
from tokenreel.text.sources.hub import HubDataset
from tokenreel.text.sources.named import NAMED, Absent, NamedHub, named_source

Reading = Callable[..., list[Record]]


def test_the_defaults_are_those_of_the_contract() -> None:
    fineweb = NAMED["fineweb-edu"]
    assert isinstance(fineweb, NamedHub)
    assert (fineweb.id, fineweb.config) == ("HuggingFaceFW/fineweb-edu", "CC-MAIN-2024-10")
    assert (fineweb.streaming, fineweb.buffer, fineweb.seed) == (True, 10_000, 42)
    assert set(NAMED) == {"fineweb-edu", "wikitext", "roam", "gutenberg", "dolly15k", "oasst1"}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    for number in range(20):
        (tmp_path / f"note {number}.md").write_text(f"note {number}")
    (tmp_path / "todo.txt").write_text("not a note")
    return tmp_path


def test_roam_is_split_by_file_seeded_and_complete(notes: Path, read_all: Reading) -> None:
    def names(**how: Any) -> list[str | None]:
        source = open_source("roam", path=str(notes), **how)
        return [record.provenance.file for record in read_all(source)]

    train, val, every = names(split="train"), names(split="val"), names()
    assert len(val) == 2 and len(every) == 20
    assert sorted(filter(None, train + val)) == sorted(filter(None, every))
    assert names(split="val") == val
    assert len({tuple(names(split="val", seed=seed)) for seed in range(10)}) > 5
    assert len(names(split="val", val_frac=0.5)) == 10
    assert names(split="val", val_frac=0.0) == []


def test_the_split_does_not_depend_on_where_the_folder_is(notes: Path, tmp_path: Path) -> None:
    before = named_source("roam", path=str(notes), split="val").fingerprint()
    moved = notes.rename(notes.parent / "moved")
    assert named_source("roam", path=str(moved), split="val").fingerprint() == before


def test_gutenberg_is_a_stub_where_absent_and_roam_is_an_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    stub = open_source("gutenberg", path=missing)
    assert isinstance(stub, Absent) and stub.ranges(1) == []
    assert stub.reason == f"no folder {missing}"
    with pytest.raises(
        InputError, match=r"the folder of 'roam' is not there; give the path of the folder"
    ):
        open_source("roam", path=missing)


def test_gutenberg_reads_text_where_it_is(tmp_path: Path, read_all: Reading) -> None:
    (tmp_path / "moby.txt").write_text("Call me Ishmael.")
    [record] = read_all(open_source("gutenberg", path=str(tmp_path)))
    assert record.text == "Call me Ishmael."


def test_wrong_splits_and_fractions_are_refused(notes: Path) -> None:
    with pytest.raises(ConfigError, match="no such split"):
        named_source("roam", path=str(notes), split="test")
    with pytest.raises(ConfigError, match="val_frac is not a fraction"):
        named_source("roam", path=str(notes), val_frac=1.5)
    with pytest.raises(ConfigError, match="no such source"):
        named_source("pile")


def test_a_dataset_travels_with_its_commit() -> None:
    commit = "0123456789" * 4
    source = open_source(f"hf:a/b@{commit}")
    copy = pickle.loads(pickle.dumps(source))
    assert copy.fingerprint() == source.fingerprint()
    assert copy.identity()["revision"] == commit


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("hf:a/b", ("a/b", None, "train", None)),
        ("hf:a/b/c", ("a/b", "c", "train", None)),
        ("hf:a/b:test", ("a/b", None, "test", None)),
        ("hf:a/b-1.0/c d:test@v1", ("a/b-1.0", "c d", "test", "v1")),
        ("hf:a/b@main", ("a/b", None, "train", "main")),
    ],
)
def test_hub_ids_are_taken_apart(spec: str, expected: tuple[str | None, ...]) -> None:
    parsed = HubDataset.parse(spec)
    assert (parsed.id, parsed.config, parsed.split, parsed.revision) == expected
