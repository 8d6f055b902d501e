"""Fault 7, a rank is lost: the others say so, and which one, instead of waiting in silence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.feed.making import write_store

from tokenreel.feed.agreement import lost_exchange, lost_ranks

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """What each rank said, by case."""
    folder = tmp_path_factory.mktemp("ranks")
    write_store(folder / "s", [40, 60, 80], first_token=1)
    subprocess.run(
        [sys.executable, "-m", "tests.faults.lost_rank_program", str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        check=True,
    )
    said: dict[str, dict[int, str]] = {}
    for file in folder.glob("*.json"):
        case, _, rank = file.stem.rpartition("-")
        said.setdefault(case, {})[int(rank)] = json.loads(file.read_text())
    return said


# Said of one that is known to have ended: the time need not be up.
ENDED = "ended before all ranks had compared what they feed from; look at what it printed last"
STUCK = (
    "has not come to compare what all ranks feed from: stuck, or ended "
    r"\(expected all ranks within 6 s, the timeout of the process group\); look at what it"
)


@pytest.mark.parametrize(
    ("case", "ranks", "error"),
    [
        ("ended", [0, 2], rf"WorkerError: rank 1 has {ENDED}.*"),
        ("never came", [0, 1], rf"WorkerError: rank 2 {STUCK}.*"),
        ("stopped", [0, 2], rf"WorkerError: rank 1 {STUCK}.*"),
        ("rank 0", [1, 2], r"WorkerError: the process that keeps the store .* has ended .*"),
        ("in the exchange", [0, 2], rf"WorkerError: rank 1 has {ENDED}.*"),
        ("in a group", [1], rf"WorkerError: rank 2 has {ENDED}.*"),
    ],
)
def test_a_lost_rank_is_named_by_every_rank_that_stays(
    told: dict[str, dict[int, str]], case: str, ranks: list[int], error: str
) -> None:
    assert sorted(told[case]) == ranks
    for rank in ranks:
        assert re.fullmatch(error, told[case][rank]), told[case][rank]


def test_several_are_named_together_and_an_unknown_one_by_its_cause() -> None:
    assert str(lost_ranks([3, 5], seconds=600)) == (
        "ranks 3, 5 have not come to compare what all ranks feed from: stuck, or ended (expected "
        "all ranks within 600 s, the timeout of the process group); look at what they printed "
        "last and which file they may wait for"
    )
    assert str(lost_exchange("Connection closed by peer", ended=[])) == (
        "a rank was lost, or is stuck, while all compared what they feed from: Connection closed "
        "by peer; look at what the other ranks printed last, and start all of them again"
    )
