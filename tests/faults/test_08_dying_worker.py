"""Fault 8: a worker that dies is reported with cause and documents; nothing hangs or stays."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.builder.faulty import Faulty
from tests.builder.making import documents, places, second_thread, tree, write_jsonl

from tokenreel.builder.build import build
from tokenreel.errors import ConfigError, VocabularyError, WorkerError
from tokenreel.text.sources import InMemory

SMALL: dict[str, Any] = {"chunk_bytes": 2000, "shard_size": 4096}


@pytest.fixture
def source(tmp_path: Path) -> list[Path]:
    rows = documents(200)
    rows[120]["text"] = "here is the trap"
    return [write_jsonl(tmp_path / "docs.jsonl", rows)]


def rerun(source: list[Path], tmp_path: Path) -> None:
    """The build completes once the cause is gone, and keeps what was encoded."""
    before = places(tmp_path / "s", ".build/*/*.chunk")
    after: dict[str, tuple[int, int]] = {}
    build(
        source,
        out=tmp_path / "s",
        tokenizer=Faulty("none"),
        watch=lambda account: after.update(places(tmp_path / "s", ".build/*/*.chunk")),
        **SMALL,
    )
    assert before and before.items() <= after.items()
    build(source, out=tmp_path / "t", tokenizer=Faulty("none"), **SMALL)
    assert tree(tmp_path / "s") == tree(tmp_path / "t")
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("exit", r"a worker process died \(exit code 7\)"),
        ("kill", r"a worker process died \(SIGKILL, as when memory runs out\)"),
    ],
)
def test_a_dead_worker_is_reported_with_cause_and_documents(
    how: str, cause: str, source: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(WorkerError, match=cause) as caught:
        build(source, out=tmp_path / "s", tokenizer=Faulty(how), workers=2, **SMALL)
    first, last = _lines(str(caught.value.where))
    assert first <= 121 <= last
    assert "run the same build again" in str(caught.value)
    rerun(source, tmp_path)


def _lines(where: str) -> tuple[int, int]:
    """Return the first and last line of `docs.jsonl:3 to docs.jsonl:9 [id]`."""
    first, _, last = where.partition(" to ")
    return tuple(int(place.split(":")[1].split(" ")[0]) for place in (first, last))  # type: ignore[return-value]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("how", "message"),
    [("memory", "out of memory: MemoryError"), ("error", "RuntimeError: the tokenizer broke")],
)
def test_a_failing_tokenizer_is_reported_with_its_documents(
    how: str, message: str, workers: int, source: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(WorkerError, match=message) as caught:
        build(source, out=tmp_path / "s", tokenizer=Faulty(how), workers=workers, **SMALL)
    first, last = _lines(str(caught.value.where))
    assert first <= 121 <= last
    rerun(source, tmp_path)


def test_a_worker_killed_from_outside_ends_the_build_at_once(
    source: list[Path], tmp_path: Path
) -> None:
    def kill_a_sleeper() -> None:
        folder = tmp_path / "s"
        while not (found := list(folder.glob(".build/*/*.at"))):
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(int(found[0].name.split(".")[0]), signal.SIGKILL)

    threading.Thread(target=kill_a_sleeper, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(WorkerError, match="SIGKILL"):
        build(source, out=tmp_path / "s", tokenizer=Faulty("sleep", word=" "), workers=2, **SMALL)
    assert time.monotonic() - began < 30
    assert multiprocessing.active_children() == []


BUILD = """
import sys
sys.path.insert(0, sys.argv[3])
from tests.builder.faulty import Faulty
from tokenreel.builder.build import build
if __name__ == "__main__":
    build([sys.argv[1]], out=sys.argv[2], tokenizer=Faulty("sleep"), workers=2, chunk_bytes=2000)
"""


def sleeping_build(source: list[Path], tmp_path: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Start a build whose workers fall asleep; return it and them."""
    script = tmp_path / "build.py"
    script.write_text(BUILD.replace('Faulty("sleep")', 'Faulty("sleep", word=" ")'))
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, str(script), str(source[0]), str(tmp_path / "s"), str(root)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    pids: set[int] = set()
    while len(pids) < 2:
        time.sleep(0.02)
        pids = {int(at.name.split(".")[0]) for at in (tmp_path / "s").glob(".build/*/*.at")}
    return process, sorted(pids)


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(_is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived its build"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_ctrl_c_ends_the_workers_and_frees_the_target(source: list[Path], tmp_path: Path) -> None:
    process, workers = sleeping_build(source, tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    assert process.wait(timeout=20) != 0
    wait_until_gone(workers)
    assert not (tmp_path / "s" / ".build" / "lock").exists()
    build(source, out=tmp_path / "s", tokenizer=Faulty("none"), chunk_bytes=2000)


def test_workers_do_not_outlive_a_parent_that_is_killed(source: list[Path], tmp_path: Path) -> None:
    process, workers = sleeping_build(source, tmp_path)
    process.kill()
    process.wait()
    wait_until_gone(workers)
    build(source, out=tmp_path / "s", tokenizer=Faulty("none"), chunk_bytes=2000)


def test_what_cannot_be_sent_to_a_worker_is_said_before_one_starts(tmp_path: Path) -> None:
    class Local(Faulty):
        pass

    refused = pytest.raises(ConfigError, match=r"cannot be sent to other processes.*workers=1")
    with second_thread(), refused:
        build(InMemory(["a"]), out=tmp_path / "s", tokenizer=Local("none"), workers=2)


def test_an_error_of_a_worker_arrives_as_it_was(source: list[Path], tmp_path: Path) -> None:
    tokenizer = Faulty("none")
    tokenizer.vocab_size = 100
    tokenizer.control_ids = {"<|endoftext|>": 99}
    with pytest.raises(VocabularyError, match="outside the vocabulary") as caught:
        build(source, out=tmp_path / "s", tokenizer=tokenizer, workers=2, **SMALL)
    assert caught.value.limit == 100  # type: ignore[attr-defined]
