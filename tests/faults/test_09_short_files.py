"""Fault 9: a file shorter by one byte, by one token, or empty."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.store.building import build_full
from tests.store.independent import kinds, read_manifest

from tokenreel import open_store
from tokenreel.errors import DamageError
from tokenreel.inspect.verify import verify_store


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_full(tmp_path_factory.mktemp("full") / "books")


def shard_files(root: Path) -> list[Path]:
    manifest = read_manifest(root)
    return [
        Path(f"{entry['path']}.{kind}")
        for shards in manifest["splits"].values()
        for entry in shards
        for kind in kinds(manifest["facts"])
    ]


def test_every_file_that_lost_its_end_is_named_at_open(full: Path, memory_disk: Path) -> None:
    num_cases = 0
    for name in shard_files(full):
        size = (full / name).stat().st_size
        for length in sorted({0, size - 1, size - 2, size - 4, size // 2} & set(range(size))):
            path = memory_disk / "books"
            shutil.copytree(full, path)
            with (path / name).open("r+b") as file:
                file.truncate(length)
            with pytest.raises(DamageError) as caught:
                open_store(path)
            assert str(caught.value) == (
                f"{path / name}: the file has the wrong size (expected {size:,} bytes, "
                f"got {length:,} bytes); restore the file or build the store again"
            )
            assert not verify_store(path).ok
            shutil.rmtree(path)
            num_cases += 1
    assert num_cases > 60


def test_every_file_that_is_missing_is_named_at_open(full: Path, memory_disk: Path) -> None:
    manifest = read_manifest(full)
    records = [
        Path(f"{entry['path']}.json") for shards in manifest["splits"].values() for entry in shards
    ]
    for name in [*shard_files(full), *records]:
        path = memory_disk / "books"
        shutil.copytree(full, path)
        (path / name).unlink()
        with pytest.raises(DamageError, match="the file is missing") as caught:
            open_store(path)
        assert caught.value.where == str(path / name)
        assert not verify_store(path).ok
        shutil.rmtree(path)


def test_a_folder_or_a_pipe_in_the_place_of_a_file_is_no_file(full: Path, tmp_path: Path) -> None:
    import os

    for make in (Path.mkdir, os.mkfifo):
        path = tmp_path / make.__name__
        shutil.copytree(full, path)
        for name in ("train/shard_00000.bin", "train/shard_00000.strings"):
            (path / name).unlink()
            make(path / name)
            with pytest.raises(DamageError, match="the file is missing"):
                open_store(path)


def test_a_missing_folder_is_named(full: Path, tmp_path: Path) -> None:
    path = tmp_path / "books"
    shutil.copytree(full, path)
    shutil.rmtree(path / "val")
    with pytest.raises(DamageError, match="cannot be read: No such file or directory") as caught:
        open_store(path)
    assert caught.value.where == str(path / "val")
