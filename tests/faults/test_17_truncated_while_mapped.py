"""Fault 17: a shard truncated while it is mapped."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.building import build, build_full

from tokenreel import open_store
from tokenreel.errors import DamageError

READ_AFTER_TRUNCATION = """
import os, sys
from tokenreel import open_store
store = open_store(sys.argv[1], mode=sys.argv[2])
print(int(store["train"].read(0, 20000).sum()), flush=True)
os.truncate(sys.argv[1] + "/train/shard_00000.bin", 100)
try:
    print(int(store["train"].read(0, 20000).sum()))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_sizes_can_be_checked_again_at_every_epoch(tmp_path: Path) -> None:
    path = build_full(tmp_path / "books")
    store = open_store(path)
    list(store["train"].documents())
    store.check_sizes()
    for file in sorted(path.glob("*/*")):
        if file.suffix in (".json", ".docs"):
            continue  # of the index the store has a copy
        whole = file.read_bytes()
        for changed in (whole[:-1], whole + b"\0", b""):
            file.write_bytes(changed)
            with pytest.raises(DamageError, match=r"the file is too (short|long)") as caught:
                store.check_sizes()
            assert caught.value.where == str(file)
            assert caught.value.expected == f"{len(whole):,} bytes"
            assert caught.value.actual == f"{len(changed):,} bytes"
        file.unlink()
        with pytest.raises(DamageError, match="cannot be read: No such file or directory"):
            store.check_sizes()
        file.write_bytes(whole)
    store.check_sizes()


def run(tmp_path: Path, mode: str) -> subprocess.CompletedProcess[str]:
    path = build(tmp_path / mode, {"train": [[1] * 20_000]}, shard_bytes=65536, block_bytes=65536)
    return subprocess.run(
        [sys.executable, "-c", READ_AFTER_TRUNCATION, str(path), mode],
        capture_output=True,
        text=True,
    )


def test_a_pread_reader_raises_where_a_mapped_one_dies(tmp_path: Path) -> None:
    survived = run(tmp_path, "pread")
    assert survived.returncode == 0
    first, second = survived.stdout.splitlines()
    assert first == "20000"
    assert second.startswith("DamageError ")
    assert "shard_00000.bin: the file ends at byte 100, before what is read" in second
    # The danger is real: the same program with a mapping is killed.
    died = run(tmp_path, "mmap")
    assert died.returncode == -signal.SIGBUS
    assert died.stdout.splitlines() == ["20000"]


@pytest.mark.parametrize("kind", ["bin", "weights", "turns", "origins", "strings"])
def test_every_file_is_read_safely_by_pread(tmp_path: Path, kind: str) -> None:
    path = build_full(tmp_path / "books")
    store = open_store(path, mode="pread")
    (path / f"train/shard_00000.{kind}").write_bytes(b"")
    with pytest.raises(DamageError) as caught:
        list(store["train"].documents())
    assert caught.value.where == str(path / f"train/shard_00000.{kind}")
    (path / f"train/shard_00000.{kind}").unlink()
    with pytest.raises(DamageError, match="No such file"):
        list(store["train"].documents())


def test_a_file_that_shrinks_between_check_and_map_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenreel.store.file_arrays import ArrayFile

    path = build(tmp_path / "books")
    file = open_store(path)["train"].shards[0].token_file
    checked = ArrayFile.check_size
    calls: list[ArrayFile] = []

    def check_then_shrink(self: ArrayFile) -> None:
        checked(self)
        if not calls:
            calls.append(self)
            self.path.write_bytes(b"")

    monkeypatch.setattr(ArrayFile, "check_size", check_then_shrink)
    with pytest.raises(DamageError, match="the file is too short"):
        file.map()
