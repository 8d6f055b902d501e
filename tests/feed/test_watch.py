"""The patrol over mapped files: each has its turn, and only what changed is an error."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tokenreel.errors import DamageError
from tokenreel.feed import watch
from tokenreel.feed.watch import Patrol
from tokenreel.store.file_arrays import ArrayFile


def files_in(folder: Path, count: int) -> list[ArrayFile]:
    """Write files of ten tokens."""
    files = []
    for number in range(count):
        path = folder / f"{number}.bin"
        np.arange(10, dtype="<u2").tofile(path)
        files.append(ArrayFile(path=path, dtype=np.dtype("<u2"), count=10))
    return files


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_each_file_has_its_turn_before_one_has_another(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PATROL_SECONDS", -1.0)
    files = files_in(tmp_path, count)
    for file in files:
        patrol = Patrol(files)
        for _ in range(2 * count):
            patrol.check()
        os.truncate(file.path, 18)
        with pytest.raises(DamageError, match=f"{file.path.name}: the file is too short"):
            for _ in range(count):
                patrol.check()
        os.truncate(file.path, 20)


def test_between_two_looks_there_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(watch, "monotonic", lambda: now[0])
    (file,) = files_in(tmp_path, 1)
    patrol = Patrol([file])
    patrol.check()
    os.truncate(file.path, 18)
    now[0] += watch.PATROL_SECONDS / 2
    patrol.check()
    now[0] += watch.PATROL_SECONDS
    with pytest.raises(DamageError, match="the file is too short"):
        patrol.check()


def test_a_file_that_was_replaced_or_removed_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PATROL_SECONDS", -1.0)
    (file,) = files_in(tmp_path, 1)
    patrol = Patrol([file])
    patrol.check()
    (tmp_path / "shorter").write_bytes(b"12")
    (tmp_path / "shorter").replace(file.path)
    patrol.check()
    file.path.unlink()
    patrol.check()
    Patrol([]).check()
