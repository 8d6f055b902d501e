"""Fault 5: two builders with one target."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.store.building import BOOKS, SMALL, as_lists, build, leftovers, read_all

from tokenreel import StoreWriter
from tokenreel.errors import BusyError, ExistsError, WriteError
from tokenreel.filesystem import LOCAL
from tokenreel.store.lock import BuildLock

HOLD = """
import sys
from tokenreel import StoreWriter
writer = StoreWriter(sys.argv[1], vocab_size=1000, shard_bytes=24, block_bytes=16)
writer.add([1] * 12)
print("held", flush=True)
sys.stdin.read()
"""
FORK_AND_HOLD = """
import os, sys, time
from tokenreel import StoreWriter
writer = StoreWriter(sys.argv[1], vocab_size=1000, shard_bytes=24, block_bytes=16)
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print("held", flush=True)
time.sleep(600)
"""
RACE = """
import sys
from tokenreel import StoreWriter
from tokenreel.errors import BusyError, ExistsError
sys.stdin.readline()
try:
    with StoreWriter(sys.argv[1], vocab_size=1000, shard_bytes=24, block_bytes=16) as writer:
        for number in range(30):
            writer.add([number] * 12)
    print("won")
except (BusyError, ExistsError) as error:
    print(type(error).__name__)
"""


def run(program: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_until_held(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"


def test_the_second_builder_is_told_who_the_first_is(tmp_path: Path) -> None:
    path = tmp_path / "books"
    holder = run(HOLD, path)
    try:
        wait_until_held(holder)
        with pytest.raises(BusyError) as caught:
            StoreWriter(path, **SMALL)
        assert str(caught.value) == (
            f"{path}: another build of this target is running: "
            f"process {holder.pid} on {socket.gethostname()}; wait for it or stop it"
        )
    finally:
        holder.kill()
        holder.communicate()


def test_the_lock_of_a_killed_builder_is_free(tmp_path: Path) -> None:
    path = tmp_path / "books"
    holder = run(HOLD, path)
    wait_until_held(holder)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert (path / ".build/lock").exists()
    build(path)
    assert read_all(path) == as_lists(BOOKS)
    assert leftovers(path) == []


def test_a_lock_that_outlives_its_holder_says_so(tmp_path: Path) -> None:
    path = tmp_path / "books"
    holder = run(FORK_AND_HOLD, path)
    wait_until_held(holder)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with pytest.raises(BusyError, match=rf"process {holder.pid} on .* \(gone, but a process"):
        StoreWriter(path, **SMALL)
    assert holder.stdin is not None
    holder.stdin.close()
    assert holder.stdout is not None
    assert holder.stdout.read() == ""  # the child is gone when nobody has the pipe any more
    build(path)
    assert read_all(path) == as_lists(BOOKS)


def test_one_process_cannot_build_one_target_twice_at_a_time(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "books", **SMALL) as first:
        first.add([1])
        with pytest.raises(BusyError, match=f"process {os.getpid()} on"):
            StoreWriter(tmp_path / "books", **SMALL)
    assert read_all(tmp_path / "books") == {"train": [[1]]}


def test_a_builder_that_is_turned_away_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "books", **SMALL) as first:
        first.add([1])
        opened = Path("/proc/self/fd")
        before = len(list(opened.iterdir()))
        for _ in range(3):
            with pytest.raises(BusyError):
                StoreWriter(tmp_path / "books", **SMALL)
        assert len(list(opened.iterdir())) == before


def test_of_processes_that_start_together_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "books"
    racers = [run(RACE, path) for _ in range(4)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    results = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert results.count("won") == 1
    assert set(results) <= {"won", "BusyError", "ExistsError"}
    assert read_all(path) == {"train": [[number] * 12 for number in range(30)]}


def test_threads_that_lock_and_release_never_hold_together(memory_disk: Path) -> None:
    # The folder of the lock comes and goes with it; whoever comes in between must cope.
    folder = memory_disk / ".build"
    problems: list[BaseException] = []
    held = 0
    num_held = [0]
    inside = threading.Lock()

    def contend() -> None:
        nonlocal held
        for _ in range(300):
            try:
                lock = BuildLock(folder / "lock", filesystem=LOCAL)
            except BusyError:
                continue
            except BaseException as error:
                problems.append(error)
                return
            with inside:
                held += 1
                num_held[0] += 1
                if held != 1:
                    problems.append(AssertionError("held twice"))
            with inside:
                held -= 1
            lock.release()
            LOCAL.remove_dir(folder)

    threads = [threading.Thread(target=contend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert num_held[0] > 10


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "host": "y"}'])
def test_a_holder_that_has_not_signed_is_still_respected(tmp_path: Path, content: str) -> None:
    with StoreWriter(tmp_path / "books", **SMALL) as writer:
        writer.add([1])
        (tmp_path / "books/.build/lock").write_text(content)
        with pytest.raises(BusyError, match="another build of this target is running"):
            StoreWriter(tmp_path / "books", **SMALL)


def test_a_lock_that_cannot_be_made_is_a_write_error(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books/.build").write_text("in the way")
    with pytest.raises(WriteError, match=r"\.build: make dir failed: File exists"):
        StoreWriter(tmp_path / "books", **SMALL)


def test_a_finished_store_is_not_touched_by_a_builder_that_may_not_replace_it(
    tmp_path: Path,
) -> None:
    path = build(tmp_path / "books")
    before = path.stat().st_mtime_ns
    with pytest.raises(ExistsError) as caught:
        StoreWriter(path, **SMALL)
    assert str(caught.value) == (
        f"{path}: a finished store is here; stores are never changed; "
        "choose another folder, or pass replace=True"
    )
    assert path.stat().st_mtime_ns == before
