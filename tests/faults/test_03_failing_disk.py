"""Fault 3: ENOSPC, EIO, a failing fsync on the n-th operation."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.building import (
    LEAFLETS,
    OTHER_BOOKS,
    SMALL,
    as_lists,
    build,
    build_full,
    leftovers,
    read_all,
)
from tests.store.independent import contents

from tokenreel import StoreWriter, open_store
from tokenreel.errors import UnfinishedError, WriteError
from tokenreel.filesystem import FileSystem

SYNCS = ("sync", "sync_dir")


class FailingFileSystem(FileSystem):
    """Let the n-th operation fail, or all from the n-th on."""

    def __init__(self, fail_at: int, *, error: int = errno.EIO, until: int | None = None) -> None:
        self.num_operations = 0
        self.failed: list[str] = []
        self._failing = range(fail_at, fail_at + 1 if until is None else until)
        self._error = error

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        """Fail, if it is time."""
        self.num_operations += 1
        if self.num_operations in self._failing:
            self.failed.append(operation)
            raise OSError(self._error, os.strerror(self._error))


def failures(error: int = errno.EIO, *, least: int = 60) -> Iterator[FailingFileSystem]:
    """Yield a file system failing at 1, 2, …, until a build no longer reaches the failure."""
    for fail_at in range(1, 1000):
        filesystem = FailingFileSystem(fail_at, error=error)
        yield filesystem
        if not filesystem.failed:
            assert fail_at > least
            return


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_any_failing_operation_is_an_error_that_alters_nothing(
    memory_disk: Path, error: int
) -> None:
    old = build(memory_disk / "old", OTHER_BOOKS)
    expected = contents(build(memory_disk / "whole", LEAFLETS))
    before = contents(old)
    for filesystem in failures(error):
        path = memory_disk / "books"
        shutil.copytree(old, path)
        try:
            build(path, LEAFLETS, replace=True, filesystem=filesystem)
            # Only what is of no use any more may fail to go away.
            assert filesystem.failed in ([], ["remove"], ["remove_dir"])
            assert contents(path) == expected
        except WriteError as problem:
            assert problem.where is not None
            assert Path(problem.where).is_relative_to(memory_disk)
            assert os.strerror(error) in str(problem)
            assert problem.remedy is not None
            assert "run the same again" in problem.remedy
            assert contents(path) == before
            assert read_all(path) == as_lists(OTHER_BOOKS)
            assert not [name for name in leftovers(path) if name.endswith(".tmp")]
        build(path, LEAFLETS, replace=True)
        assert contents(path) == expected
        shutil.rmtree(path)


def test_a_failed_first_build_leaves_no_store_and_no_temporaries(memory_disk: Path) -> None:
    expected = contents(build_full(memory_disk / "whole", splits=("train",)))
    for filesystem in failures():
        path = memory_disk / "books"
        try:
            build_full(path, filesystem=filesystem, splits=("train",))
        except WriteError:
            assert not (path / "manifest.json").exists()
            assert not [name for name in leftovers(path) if name.endswith(".tmp")]
            build_full(path, splits=("train",))
        assert contents(path) == expected
        shutil.rmtree(path)


def test_a_failed_fsync_is_never_a_success(memory_disk: Path) -> None:
    num_syncs = 0
    for filesystem in failures(least=40):
        path = memory_disk / "books"
        writer = None
        try:
            writer = StoreWriter(path, filesystem=filesystem, **SMALL)
            writer.add([1] * 12)
            writer.add([2] * 12)
            writer.commit()
            assert not set(filesystem.failed) & set(SYNCS)
        except WriteError:
            num_syncs += filesystem.failed[0] in SYNCS
            if writer is not None:
                with pytest.raises(WriteError, match="failed half-way"):
                    writer.commit()
                with pytest.raises(WriteError, match="failed half-way"):
                    writer.add([3])
                with pytest.raises(UnfinishedError):
                    open_store(path)
        finally:
            if writer is not None:
                writer.abandon()
        shutil.rmtree(path, ignore_errors=True)
    assert num_syncs > 5


def test_a_disk_that_is_gone_from_some_moment_on_loses_no_store(memory_disk: Path) -> None:
    old = build(memory_disk / "old", OTHER_BOOKS)
    for fail_at in range(1, 1000):
        path = memory_disk / "books"
        shutil.copytree(old, path)
        filesystem = FailingFileSystem(fail_at, until=10**6)
        try:
            build(path, LEAFLETS, replace=True, filesystem=filesystem)
        except WriteError:
            assert read_all(path) in (as_lists(OTHER_BOOKS), as_lists(LEAFLETS))
        build(path, LEAFLETS, replace=True)
        assert read_all(path) == as_lists(LEAFLETS)
        shutil.rmtree(path)
        if not filesystem.failed:
            break


def test_a_full_disk_is_told_in_words(tmp_path: Path) -> None:
    class FullDisk(FileSystem):
        def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
            if operation == "write" and path.suffixes == [".bin", ".tmp"]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(WriteError) as caught:
        build(tmp_path / "books", filesystem=FullDisk())
    assert str(caught.value) == (
        f"{tmp_path}/books/train/shard_00000.bin.tmp: write failed: No space left on device; "
        "free some space and run the same again: what is finished is kept"
    )


def test_a_real_full_disk_is_told_too(tmp_path: Path) -> None:
    # A file size limit is the full disk that needs no administrator.
    import subprocess
    import sys

    program = (
        "import resource, signal, sys, tokenreel\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "with tokenreel.StoreWriter(sys.argv[1], vocab_size=9, block_bytes=1024) as writer:\n"
        "    for _ in range(100): writer.add([1] * 100)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "books")], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "shard_00000.bin.tmp: write failed: File too large" in done.stderr
    assert leftovers(tmp_path / "books") == [".build", ".build/plan.json"]
