"""Fault 16: a manifest path that leads out of the store; the file is not opened."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.store.building import build, corpus_of, read_all
from tests.store.independent import edit_manifest, read_manifest, write_manifest

from tokenreel import open_store
from tokenreel.errors import DamageError, FormatError
from tokenreel.inspect.verify import verify_store


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Collect the names of all files that the interpreter opens."""
    names: list[str] = []
    active = [True]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if active and event in ("open", "os.open"):
            names.append(str(arguments[0]))

    sys.addaudithook(hook)  # cannot be removed, only silenced
    try:
        yield names
    finally:
        active.clear()


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return build(tmp_path / "books")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "//etc/passwd",
        "../outside/train/shard_00000",
        "train/../../outside/train/shard_00000",
        "train/..",
        "..",
        ".",
        "",
        "./train/shard_00000",
        "train//shard_00000",
        "train/shard_00000/",
        "/",
        "train/shard_00000\0",
        "\0",
        "http://example.org/shard_00000",
        "file:///etc/passwd",
        "s3:bucket",
        "train\\shard_00000",
        "C:\\train",
        "C:/train",
        "~/shard_00000",
        "$HOME/shard",
        "train/shard_00000\n",
        "train/shard 0",
        ".build/shard_00000",
        "train/.hidden",
        "train/sh\u00e4rd",
        "train/..shard",
        "a..b/shard",
        7,
        None,
        ["train", "shard_00000"],
        True,
    ],
)
def test_a_path_that_is_not_plain_names_is_refused(books: Path, path: object) -> None:
    shutil.copytree(books, books.parent / "outside")
    edit_manifest(books, lambda m: m["splits"]["train"][0].update(path=path))
    with opened_files() as names, pytest.raises(FormatError) as caught:
        open_store(books)
    assert caught.value.what == "wrong value of splits.train[0].path"
    assert caught.value.expected == "a relative path inside the store"
    assert caught.value.actual == repr(path)
    assert [name for name in names if "shard" in name or "passwd" in name] == []
    assert not verify_store(books).ok


def test_a_path_to_nowhere_is_an_error(books: Path) -> None:
    for path in ("nowhere/shard_00000", "train/shard_99999", "manifest.json/x", "a" * 5000):
        manifest = read_manifest(books)
        manifest["splits"]["train"][0]["path"] = path
        write_manifest(books, manifest)
        with pytest.raises(DamageError):
            open_store(books)


def test_a_file_that_is_a_link_out_of_the_store_is_not_opened(books: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(books, outside)
    for kind in ("bin", "docs", "json"):
        file = books / f"train/shard_00000.{kind}"
        whole = file.read_bytes()
        file.unlink()
        file.symlink_to(outside / f"train/shard_00000.{kind}")
        with opened_files() as names, pytest.raises(DamageError) as caught:
            open_store(books)
        assert caught.value.what == "the file leads out of the store through a link"
        assert caught.value.where == str(file)
        assert [name for name in names if "shard" in name] == []
        file.unlink()
        file.write_bytes(whole)
    open_store(books)


def test_a_folder_that_is_a_link_out_of_the_store_is_not_opened(
    books: Path, tmp_path: Path
) -> None:
    shutil.move(books / "train", tmp_path / "outside")
    (books / "train").symlink_to(tmp_path / "outside", target_is_directory=True)
    with opened_files() as names, pytest.raises(DamageError) as caught:
        open_store(books)
    assert caught.value.what == "the folder leads out of the store through a link"
    assert caught.value.where == str(books / "train")
    assert [name for name in names if "shard" in name] == []


def test_a_link_that_climbs_out_and_a_link_to_a_link_are_seen(books: Path, tmp_path: Path) -> None:
    secret = tmp_path / "books-secret"  # a name that begins like the store's
    shutil.copytree(books / "train", secret)
    file = books / "train/shard_00000.bin"
    for target in ("../../books-secret/shard_00000.bin", "hop"):
        file.unlink()
        if target == "hop":
            (books / "train/hop").symlink_to(secret / "shard_00000.bin")
        file.symlink_to(target)
        with pytest.raises(DamageError, match="leads out of the store through a link"):
            open_store(books)


def test_a_link_that_leads_nowhere_is_an_error(books: Path) -> None:
    file = books / "train/shard_00000.bin"
    file.unlink()
    file.symlink_to("gone.bin")
    with pytest.raises(DamageError):
        open_store(books)
    file.unlink()
    file.symlink_to("shard_00000.bin")  # to itself
    with pytest.raises(DamageError):
        open_store(books)


def test_links_to_the_store_and_inside_it_are_fine(books: Path, tmp_path: Path) -> None:
    expected = read_all(books)
    (tmp_path / "link").symlink_to(books, target_is_directory=True)
    (books / "val/real.bin").write_bytes((books / "val/shard_00000.bin").read_bytes())
    (books / "val/shard_00000.bin").unlink()
    (books / "val/shard_00000.bin").symlink_to("real.bin")
    assert corpus_of(open_store(tmp_path / "link")) == expected
    assert corpus_of(open_store(os.path.relpath(books))) == expected
