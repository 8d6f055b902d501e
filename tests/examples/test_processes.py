"""The examples with several processes: ranks killed and resumed, torchrun; Ray."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from tests.examples.conftest import EXAMPLES, finish, run, start
from tests.forked import Forked, Forks

import tokenreel

SAVE_EVERY = 20


def told(printed: str) -> dict[int, dict[str, float]]:
    lines = [json.loads(line) for line in printed.splitlines()]
    return {line["step"]: line for line in lines}


def whole_lines(forked: Forked) -> str:
    return forked.printed().rpartition("\n")[0]


def compare(before: dict[int, dict[str, float]], after: dict[int, dict[str, float]]) -> None:
    """Compare what two ranks told until they were killed with what one told that went on."""
    steps = max(before) + 3
    assert {line["ranks"] for line in before.values()} == {2}
    assert {line["ranks"] for line in after.values()} == {1}
    assert sorted(before) == list(range(steps - 2)) and sorted(after) == list(range(20, steps))
    both = before.keys() & after.keys()  # trained by two ranks, and again by one
    assert len(both) >= 5
    for step in both:
        assert after[step]["loss"] == pytest.approx(before[step]["loss"], abs=1e-3)
    assert after[steps - 1]["loss"] < before[0]["loss"]


def test_two_ranks_killed_go_on_as_one_with_the_same_losses(
    store: Path, tmp_path: Path, forks: Forks
) -> None:
    def launch(world_size: int, steps: int) -> list[Forked]:
        """Start the ranks as torchrun does."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": world_size}
        words = (store, "--folder", tmp_path, "--steps", steps, "--save-every", SAVE_EVERY)
        return [
            forks.start(
                EXAMPLES / "ddp_resume.py",
                *words,
                environment={**common, "RANK": rank, "LOCAL_RANK": rank},
            )
            for rank in range(world_size)
        ]

    two = launch(2, 1000)
    while max(told(whole_lines(two[0])), default=0) < SAVE_EVERY + 4:
        assert "Error" not in two[0].complaints(), two[0].complaints()
        time.sleep(0.01)
    for rank in two:
        rank.kill()
    before = told(whole_lines(two[0]))
    [one] = launch(1, max(before) + 3)
    compare(before, told(one.finish()))


def torchrun(ranks: int, *words: object) -> subprocess.Popen[str]:
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    return start("ddp_resume.py", *words, "--save-every", SAVE_EVERY, launcher=launcher)


@pytest.mark.soak
def test_two_ranks_of_torchrun_killed_go_on_as_one_with_the_same_losses(
    store: Path, tmp_path: Path
) -> None:
    two = torchrun(2, store, "--folder", tmp_path, "--steps", 1000)
    assert two.stdout is not None
    before: dict[int, dict[str, float]] = {}
    while max(before, default=0) < SAVE_EVERY + 4:
        line = two.stdout.readline()
        assert line, two.communicate()[1]
        before.update(told(line))
    launched = psutil.Process(two.pid)
    for process in [launched, *launched.children(recursive=True)]:
        process.kill()
    before.update(told(two.communicate()[0]))
    steps = max(before) + 3
    compare(before, told(finish(torchrun(1, store, "--folder", tmp_path, "--steps", steps))))


@pytest.mark.soak
def test_ray_builds_the_bytes_of_one_process(corpus: Path, tmp_path: Path) -> None:
    printed = run("ray_build.py", corpus / "docs.jsonl", "--out", tmp_path / "ray")
    alone = tokenreel.build(
        corpus / "docs.jsonl", out=tmp_path / "alone", tokenizer="byte", val_frac=0.02
    )
    found = re.search(r"^fingerprint (\w+)$", printed, re.MULTILINE)
    assert found is not None and found[1] == alone.store.fingerprint
