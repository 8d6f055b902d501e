"""Fault 18: tokenizer, recipe or source content changed under the same names and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.building import BOOKS, SMALL, add_all, as_lists, build, read_all, some_turns
from tests.store.independent import contents

from tokenreel import Provenance, StoreWriter
from tokenreel.errors import MismatchError

FACTS: dict[str, Any] = {
    "dtype": "uint16",
    "tokenizer": {"name": "bytes", "sha256": "9f3c"},
    "build": {"recipe": "a", "sources": ["x.jsonl", "y.jsonl"]},
}


def begin(path: Path, corpus=BOOKS, **options: Any) -> None:  # type: ignore[no-untyped-def]
    """Leave an unfinished build."""
    with pytest.raises(KeyboardInterrupt), StoreWriter(path, **{**SMALL, **options}) as writer:
        add_all(writer, corpus)
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tokenizer", {"name": "bytes", "sha256": "00a1"}),
        ("tokenizer", None),
        ("dtype", "uint32"),
        ("vocab_size", 999),
        ("shard_bytes", 26),
        ("block_bytes", 24),
        ("weights", "uint8"),
        ("turns", True),
        ("provenance", True),
        ("build", {"recipe": "b", "sources": ["x.jsonl", "y.jsonl"]}),
        ("build", {"recipe": "a", "sources": ["y.jsonl", "x.jsonl"]}),
        ("build", {}),
    ],
)
def test_another_build_in_the_same_folder_is_told_what_differs(
    tmp_path: Path, field: str, value: object
) -> None:
    path = tmp_path / "books"
    begin(path, **FACTS)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(MismatchError) as caught:
        StoreWriter(path, **{**SMALL, **FACTS, field: value})
    known = {**SMALL, "weights": None, "turns": False, "provenance": False, **FACTS}
    assert caught.value.differing == {field: (known[field], value)}
    assert str(caught.value) == (
        f"{path}: an unfinished build of something else is here; differing: {field} "
        f"(expected {known[field]!r}, got {value!r}); "
        "build that one to its end, or pass restart=True to begin anew"
    )
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_the_same_facts_continue_however_they_are_written_down(tmp_path: Path) -> None:
    path = tmp_path / "books"
    begin(path, **FACTS)
    same = {"sources": ("x.jsonl", "y.jsonl"), "recipe": "a"}  # a tuple, in another order
    build(path, **{**FACTS, "build": same})
    assert read_all(path) == as_lists(BOOKS)


def test_facts_that_are_only_equal_in_python_are_different(tmp_path: Path) -> None:
    begin(tmp_path / "books", build={"share": 1})
    for value in (1.0, True, "1"):
        with pytest.raises(MismatchError, match="build"):
            StoreWriter(tmp_path / "books", build={"share": value}, **SMALL)


def test_other_documents_are_told_from_those_of_the_unfinished_build(tmp_path: Path) -> None:
    # Same number, same lengths, same facts: only a token differs, in a shard that is finished.
    path = tmp_path / "books"
    begin(path)
    other = as_lists(BOOKS)
    other["train"][1][2] += 1
    with pytest.raises(MismatchError) as caught:
        build(path, other)
    assert caught.value.what.startswith(
        "the documents added are not those that the unfinished build was begun with"
    )
    assert caught.value.where == str(path / "train/shard_00000")
    assert set(caught.value.differing) == {"record_sha256"}
    assert caught.value.remedy == "add the same documents again, or pass restart=True to begin anew"
    build(path)
    assert read_all(path) == as_lists(BOOKS)


def test_weights_turns_and_provenance_are_told_apart_too(tmp_path: Path) -> None:
    kept: dict[str, Any] = {
        "turns": some_turns(12),
        "weights": np.ones(12),
        "provenance": Provenance(file="a.jsonl", row=1),
    }
    changed: dict[str, Any] = {
        "turns": some_turns(12, weight=0.5),
        "weights": np.zeros(12),
        "provenance": Provenance(file="b.jsonl", row=1),
    }
    settings = {**SMALL, "turns": True, "weights": "uint8", "provenance": True}
    path = tmp_path / "books"

    def add_two(**first: Any) -> None:
        with StoreWriter(path, **settings) as writer:
            writer.add([1] * 12, **first)
            writer.add([2] * 12, **kept)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_two(**kept)
    for name, value in changed.items():
        with pytest.raises(MismatchError, match="are not those"):
            add_two(**{**kept, name: value})
    with pytest.raises(KeyboardInterrupt):
        add_two(**kept)


def test_documents_in_another_order_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "books"
    begin(path)
    with pytest.raises(MismatchError):
        build(path, {**BOOKS, "train": [*reversed(BOOKS["train"])]})


def test_fewer_documents_than_are_finished_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "books"
    begin(path, {"train": [[1] * 12, [2] * 12, [3] * 12]})
    with pytest.raises(MismatchError) as caught:
        build(path, {"train": [[1] * 12]})
    assert caught.value.differing == {"documents": (2, 1)}
    assert str(caught.value) == (
        "split train: fewer documents were added than the unfinished build already holds; "
        "differing: documents (expected 2, got 1); "
        "add the same documents again, or pass restart=True to begin anew"
    )


def test_a_split_that_was_begun_and_then_forgotten_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "books"
    begin(path, {"train": [[1]], "val": [[2] * 12, [3]]})
    with pytest.raises(MismatchError) as caught:
        build(path, {"train": [[1]]})
    assert caught.value.differing == {"splits": (["train", "val"], ["train"])}
    assert caught.value.remedy == "add or resume every split, or pass restart=True to begin anew"
    build(path, {"train": [[1]]}, restart=True)
    assert read_all(path) == {"train": [[1]]}
    assert not (path / "val").exists()


def test_a_restart_begins_anew_with_other_facts(tmp_path: Path) -> None:
    path = tmp_path / "books"
    begin(path, **FACTS)
    build(path, restart=True, vocab_size=70_000)
    expected = build(tmp_path / "expected", vocab_size=70_000)
    assert contents(path) == contents(expected)


def test_nothing_but_shards_is_removed_when_a_build_begins_anew(tmp_path: Path) -> None:
    path = build(tmp_path / "books")
    build(path, replace=True)
    mine = [path / "train/notes.txt", path / "train.2/mine.bin", path / "rows/plan.bin"]
    mine += [path / "readme", path / "train/shard_00000.txt", path / "train.2/shard_1.bin"]
    for file in mine:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    (path / "linked").symlink_to(tmp_path, target_is_directory=True)
    build(path, replace=True)
    build(path, replace=True)
    assert [file.read_text() for file in mine] == ["mine"] * len(mine)
    assert (path / "linked").is_symlink()
    assert read_all(path) == as_lists(BOOKS)
    assert [folder.name for folder in sorted(path.glob("train*"))] == [
        "train",
        "train.2",
        "train.3",
        "train.4",
    ]
    assert list((path / "train").iterdir()) == [path / "train/notes.txt"] or {
        file.name for file in (path / "train").iterdir()
    } == {"notes.txt", "shard_00000.txt"}


def test_a_damaged_plan_is_an_error_until_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "books"
    begin(path)
    (path / ".build/plan.json").write_bytes(b'{"replaces":null}\n')
    with pytest.raises(Exception, match="the plan of the unfinished build is damaged"):
        StoreWriter(path, **SMALL)
    build(path, restart=True)
    assert read_all(path) == as_lists(BOOKS)


def test_a_folder_of_something_else_is_never_built_in(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books/thesis.tex").write_text("precious")
    with pytest.raises(Exception, match="the folder holds other files and is not a store") as e:
        StoreWriter(tmp_path / "books", replace=True, restart=True, **SMALL)
    assert "thesis.tex" in str(e.value)
    assert [file.name for file in (tmp_path / "books").iterdir()] == ["thesis.tex"]
