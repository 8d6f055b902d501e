"""Fault 2: kill -9 of a real building process, at random moments, many times."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.store.building import read_all
from tests.store.independent import contents, find_damage

from tokenreel.errors import UnfinishedError

BUILD = """
import sys
from tokenreel import StoreWriter
with StoreWriter(sys.argv[1], vocab_size=500, shard_bytes=64, block_bytes=16) as writer:
    print("begun", flush=True)
    for number in range(300):
        writer.add([number] * (number % 7), split="val" if number % 9 == 0 else "train")
"""


def start(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def finished_files(path: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of each file of the finished shards."""
    found = {}
    for record in path.glob("*/shard_*.json"):
        json.loads(record.read_bytes())
        for file in record.parent.glob(f"{record.stem}.*"):
            if file.suffix != ".tmp":
                status = file.stat()
                found[str(file.relative_to(path))] = (status.st_ino, status.st_mtime_ns)
    return found


def kill_many_times(tmp_path: Path, *, kills: int) -> None:
    chance = random.Random(20)
    whole = tmp_path / "whole"
    process = start(whole)
    began = time.monotonic()
    assert process.wait() == 0
    duration = time.monotonic() - began
    expected = contents(whole)
    num_killed = num_kept = num_built = 0
    path = tmp_path / "books"
    before: dict[str, tuple[int, int]] = {}
    while num_killed < kills:
        process = start(path)
        time.sleep(chance.uniform(0, duration))
        process.send_signal(signal.SIGKILL)
        num_killed += process.wait() == -signal.SIGKILL
        after = finished_files(path)
        assert before.items() <= after.items(), "a finished shard was lost or written again"
        num_kept += len(before)
        before = after
        if (path / "manifest.json").exists():
            assert find_damage(path) == []
            assert contents(path) == expected
            num_built += 1
            path = tmp_path / f"books-{num_built}"
            before = {}
            continue
        with pytest.raises(UnfinishedError):
            read_all(path)
    if not (path / "manifest.json").exists():
        assert start(path).wait() == 0
    assert contents(path) == expected
    assert num_kept > 0


def test_finished_shards_are_neither_redone_nor_lost(tmp_path: Path) -> None:
    kill_many_times(tmp_path, kills=5)


@pytest.mark.soak
def test_finished_shards_are_neither_redone_nor_lost_200_times(tmp_path: Path) -> None:
    kill_many_times(tmp_path, kills=200)
