"""The loop of prompts and groups of answers: killed, it goes on with other ranks."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from tests.examples.conftest import EXAMPLES
from tests.forked import Forked, Forks

import tokenreel

SAVE_EVERY = 5
ROWS, REPEATS = 24, 4
STEPS = 40


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a store of prompts with their answers."""
    records = [
        {"id": 10 * a + b, "question": f"{a}+{b}=", "answer": str(a + b)}
        for a in range(10)
        for b in range(10)
    ]
    out = tmp_path_factory.mktemp("prompts") / "sums"
    tokenreel.build(
        records, out=out, tokenizer="byte", prompts=True, text_key="question", progress=False
    )
    return out


def launch(forks: Forks, sums: Path, folder: Path, *, ranks: int, steps: int) -> list[Forked]:
    """Start the ranks as torchrun does; one by itself as a plain program."""
    words = (sums, "--folder", folder, "--steps", steps, "--save-every", SAVE_EVERY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": ranks}
    return [
        forks.start(
            EXAMPLES / "grpo_loop.py",
            *words,
            environment={**common, "RANK": rank} if ranks > 1 else {},
        )
        for rank in range(ranks)
    ]


def told(printed: str) -> dict[int, dict[str, object]]:
    return {line["step"]: line for line in map(json.loads, printed.splitlines())}


@pytest.mark.soak
def test_each_group_of_rows_asks_one_prompt(sums: Path, tmp_path: Path, forks: Forks) -> None:
    [one] = launch(forks, sums, tmp_path, ranks=1, steps=3)
    for line in told(one.finish()).values():
        asked = line["asked"]
        assert isinstance(asked, list) and len(asked) == ROWS
        groups = [set(asked[first : first + REPEATS]) for first in range(0, ROWS, REPEATS)]
        assert [len(group) for group in groups] == [1] * (ROWS // REPEATS)


@pytest.mark.soak
def test_a_loop_killed_goes_on_with_other_ranks_and_the_same_prompts_and_rewards(
    sums: Path, tmp_path: Path, forks: Forks
) -> None:
    [unbroken] = launch(forks, sums, tmp_path / "unbroken", ranks=1, steps=STEPS)
    [killed] = launch(forks, sums, tmp_path / "killed", ranks=1, steps=STEPS)
    while max(told(killed.printed().rpartition("\n")[0]), default=0) < SAVE_EVERY:
        assert "Error" not in killed.complaints(), killed.complaints()
        time.sleep(0.01)
    killed.kill()
    ranks = launch(forks, sums, tmp_path / "killed", ranks=3, steps=STEPS)
    three = [told(rank.finish()) for rank in ranks]
    before, both = told(unbroken.finish()), three[0].keys()
    assert min(both) >= SAVE_EVERY and max(both) == STEPS - 1
    for step in both:
        asked = [number for rank in three for number in rank[step]["asked"]]  # type: ignore[attr-defined]
        assert asked == before[step]["asked"]
        groups = [asked[first : first + REPEATS] for first in range(0, ROWS, REPEATS)]
        assert [len(set(group)) for group in groups] == [1] * (ROWS // REPEATS)
        for rank in three:
            assert rank[step]["reward"] == pytest.approx(before[step]["reward"], abs=0.1)
