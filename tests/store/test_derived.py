"""What is kept beside a store: found, made once, made again when damaged, kept elsewhere."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from tokenreel.errors import DamageError, WriteError
from tokenreel.filesystem import FileSystem
from tokenreel.store.derived import cache_folder, load_or_make


class Failing(FileSystem):
    """Fail to change anything in a folder."""

    def __init__(self, where: Path, error: int) -> None:
        self.where, self.error = where, error

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        if path.is_relative_to(self.where):
            raise OSError(self.error, os.strerror(self.error))


class Kept:
    """A number in a file of its folder; "?" is damage."""

    def __init__(self, *folders: Path, filesystem: FileSystem | None = None) -> None:
        self.folders = folders
        self.num_made = 0
        self._filesystem = filesystem or FileSystem()

    def get(self) -> int:
        return load_or_make(
            "number", self.folders, load=self._load, make=self._make, filesystem=self._filesystem
        )

    def _load(self, folder: Path) -> int | None:
        path = folder / "number"
        if not path.exists():
            return None
        if path.read_bytes() == b"?":
            raise DamageError("no number", where=path)
        return int(path.read_bytes())

    def _make(self, folder: Path) -> int:
        self.num_made += 1
        self._filesystem.write_whole(folder / "number", b"%d" % self.num_made)
        return self.num_made


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "beside", tmp_path / "cache"


def test_it_is_made_beside_the_store_once(folders: tuple[Path, Path]) -> None:
    kept = Kept(*folders)
    assert [kept.get(), kept.get()] == [1, 1]
    assert (folders[0] / "number").exists()
    assert not folders[1].exists()


def test_what_is_in_the_cache_is_found_there(folders: tuple[Path, Path]) -> None:
    folders[1].mkdir()
    (folders[1] / "number").write_bytes(b"7")
    assert Kept(*folders).get() == 7
    assert not folders[0].exists()


def test_what_is_damaged_is_made_again_and_said_once(
    folders: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    folders[0].mkdir()
    (folders[0] / "number").write_bytes(b"?")
    assert Kept(*folders).get() == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"a damaged number is made again: {folders[0]}/number: no number" in caplog.text


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_where_nothing_can_be_written_the_cache_has_it(
    folders: tuple[Path, Path], error: int
) -> None:
    kept = Kept(*folders, filesystem=Failing(folders[0], error))
    assert [kept.get(), kept.get()] == [1, 1]
    assert (folders[1] / "number").exists()


def test_a_file_in_the_place_of_the_folder_sends_it_to_the_cache(
    folders: tuple[Path, Path],
) -> None:
    folders[0].write_bytes(b"a file")
    assert Kept(*folders).get() == 1
    assert (folders[1] / "number").exists()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_full_or_failing_disk_moves_nothing(folders: tuple[Path, Path], error: int) -> None:
    with pytest.raises(WriteError, match=os.strerror(error)):
        Kept(*folders, filesystem=Failing(folders[0], error)).get()
    assert not folders[1].exists()


def test_a_cache_that_cannot_be_written_to_either_is_an_error(folders: tuple[Path, Path]) -> None:
    everywhere = Failing(folders[0].parent, errno.EROFS)
    with pytest.raises(WriteError, match="cache: make dir failed: Read-only file system"):
        Kept(*folders, filesystem=everywhere).get()


def test_the_cache_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("eos", "a") == tmp_path / "tokenreel" / "eos" / "a"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("plans") == tmp_path / ".cache" / "tokenreel" / "plans"
