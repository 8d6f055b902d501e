"""The one object through which everything on disk is changed."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import numpy as np
import pytest

from tokenreel import native
from tokenreel.errors import WriteError
from tokenreel.filesystem import (
    LOCAL,
    NOWHERE,
    REMEDIES,
    REMEDY,
    FileSystem,
    held,
    unique_name,
)


class Observing(FileSystem):
    """Keep a list of operations; let one kind fail."""

    def __init__(self, failing: str = "", error: int = errno.EIO) -> None:
        self.seen: list[tuple[str, str]] = []
        self._failing = failing
        self._error = error

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        """Write down and fail."""
        self.seen.append((operation, path.name))
        if operation == self._failing:
            raise OSError(self._error, os.strerror(self._error))


def test_a_small_file_is_written_synced_renamed_and_its_folder_synced(tmp_path: Path) -> None:
    filesystem = Observing()
    filesystem.write_whole(tmp_path / "plan.json", b"{}")
    assert filesystem.seen == [
        ("create", "plan.json.tmp"),
        ("write", "plan.json.tmp"),
        ("sync", "plan.json.tmp"),
        ("rename", "plan.json.tmp"),
        ("sync_dir", tmp_path.name),
    ]
    assert (tmp_path / "plan.json").read_bytes() == b"{}"


@pytest.mark.parametrize("failing", ["create", "write", "sync", "rename"])
def test_a_small_file_that_fails_leaves_the_old_one_and_no_temporary(
    tmp_path: Path, failing: str
) -> None:
    (tmp_path / "plan.json").write_bytes(b"old")
    with pytest.raises(WriteError) as caught:
        Observing(failing).write_whole(tmp_path / "plan.json", b"new")
    assert str(caught.value) == (
        f"{tmp_path / 'plan.json.tmp'}: {failing} failed: Input/output error; {REMEDY}"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]
    assert (tmp_path / "plan.json").read_bytes() == b"old"


@pytest.mark.parametrize("error", sorted(REMEDIES))
def test_each_known_cause_has_its_remedy(tmp_path: Path, error: int) -> None:
    with pytest.raises(WriteError) as caught:
        Observing("make_dir", error).make_dir(tmp_path / "a")
    assert caught.value.remedy == REMEDIES[error]
    assert caught.value.what == f"make dir failed: {os.strerror(error)}"
    assert caught.value.where == str(tmp_path / "a")


def test_folders_are_made_durable_from_the_top(tmp_path: Path) -> None:
    filesystem = Observing()
    filesystem.make_dir(tmp_path / "a/b")
    assert filesystem.seen == [
        ("make_dir", "a"),
        ("sync_dir", tmp_path.name),
        ("make_dir", "b"),
        ("sync_dir", "a"),
    ]
    filesystem.make_dir(tmp_path / "a/b")
    assert len(filesystem.seen) == 4


def test_a_folder_that_is_not_empty_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").touch()
    LOCAL.remove_dir(tmp_path / "a")
    assert (tmp_path / "a/file").exists()
    (tmp_path / "a/file").unlink()
    LOCAL.remove_dir(tmp_path / "a")
    LOCAL.remove_dir(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_what_cannot_be_discarded_is_said_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "old").touch()
    Observing("remove").discard(tmp_path / "old")
    assert (tmp_path / "old").exists()
    assert "a useless file stays" in caplog.text
    LOCAL.discard(tmp_path / "old")
    LOCAL.discard(tmp_path / "old")
    assert not (tmp_path / "old").exists()


def test_without_the_kernels_nothing_hastens_and_all_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "extension", lambda: None)
    with LOCAL.create(tmp_path / "a") as output:
        output.write(b"abc")
        output.hasten()
        output.sync()
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_a_closed_file_is_closed_twice_without_harm(tmp_path: Path) -> None:
    output = LOCAL.create(tmp_path / "a")
    output.write(b"abc")
    output.close()
    other = os.open(tmp_path / "b", os.O_CREAT | os.O_WRONLY)  # takes the descriptor's number
    output.close()
    os.write(other, b"still open")
    os.close(other)
    assert (tmp_path / "b").read_bytes() == b"still open"


def test_nowhere_keeps_nothing(tmp_path: Path) -> None:
    NOWHERE.write_whole(tmp_path / "a/b", b"data")
    NOWHERE.make_dir(tmp_path / "c")
    with NOWHERE.create(tmp_path / "d") as output:
        output.write(b"data")
        output.sync()
    (tmp_path / "e").touch()
    NOWHERE.remove(tmp_path / "e")
    NOWHERE.remove_dir(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["e"]


def test_a_file_whose_disk_was_asked_to_begin_has_all_that_was_written(tmp_path: Path) -> None:
    with LOCAL.create(tmp_path / "file") as output:
        output.hasten()
        output.write(b"one")
        output.hasten()
        output.write(memoryview(b"two"))
        output.sync()
    assert (tmp_path / "file").read_bytes() == b"onetwo"


def test_a_file_takes_arrays_as_they_lie_and_counts_its_bytes(tmp_path: Path) -> None:
    with LOCAL.create(tmp_path / "a") as output:
        output.write(np.arange(6, dtype="<u2").reshape(2, 3)[:, ::2])  # not contiguous
        output.write(np.empty(0, "<u8"))
        output.write(b"end")
    assert output.num_bytes == 11
    assert (tmp_path / "a").read_bytes() == np.array([0, 2, 3, 5], "<u2").tobytes() + b"end"


def test_two_that_write_one_file_under_names_of_their_own_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with LOCAL.whole_file(path, temporary=unique_name(path)) as slow:
        slow.write(b"slow ")
        with LOCAL.whole_file(path, temporary=unique_name(path)) as fast:
            fast.write(b"fast")
        assert path.read_bytes() == b"fast"
        slow.write(b"one")
    assert path.read_bytes() == b"slow one"
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def leave_behind(folder: Path) -> None:
    """Leave what exports that were killed would: one three days ago, one just now."""
    for name in (".out.0000000a.tmp", ".out.0000000b.tmp"):
        (folder / name / "train").mkdir(parents=True)
        (folder / name / "train" / "file").write_bytes(b"half")
    long_ago = time.time() - 3 * 24 * 3600
    os.utime(folder / ".out.0000000a.tmp", (long_ago, long_ago))


def test_a_folder_that_appears_removes_what_the_dead_have_left_and_nothing_of_the_living(
    tmp_path: Path,
) -> None:
    leave_behind(tmp_path)
    other = tmp_path / ".other.0000000c.tmp"
    other.mkdir()
    with held(tmp_path / ".out.0000000b.tmp"), LOCAL.whole_folder(tmp_path / "out") as folder:
        (folder / "file").write_bytes(b"whole")
    assert (tmp_path / "out" / "file").read_bytes() == b"whole"
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".other.0000000c.tmp", ".out.0000000b.tmp", "out"]


def test_on_a_disk_without_locks_a_folder_appears_and_only_old_leftovers_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    leave_behind(tmp_path)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with LOCAL.whole_folder(tmp_path / "out") as folder:
        (folder / "file").write_bytes(b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.0000000b.tmp", "out"]


def test_a_link_among_what_is_discarded_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    (tmp_path / "old" / "deep").mkdir(parents=True)
    (tmp_path / "old" / "deep" / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "old" / "broken").symlink_to(tmp_path / "nothing")
    LOCAL.discard_tree(tmp_path / "old")
    LOCAL.discard_tree(tmp_path / "old")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "file"]
