"""Ranks under torch.distributed for tests: one program that has torch, and forks from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


class Ranks:
    """Runs of tests.adapters.rank_program, one after the other."""

    def __init__(self) -> None:
        self._program: subprocess.Popen[str] | None = None

    def launch(self, task: str, world_size: int, folder: Path) -> None:
        """Start the ranks of a run."""
        if self._program is None:  # importing torch takes longer than most runs
            self._program = subprocess.Popen(
                [sys.executable, "-m", "tests.adapters.rank_program"],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        print(json.dumps([task, world_size, str(folder)]), file=self._program.stdin, flush=True)

    def finish(self) -> list[int]:
        """Wait for all ranks of the run and return their exit codes."""
        assert self._program is not None and self._program.stdout is not None
        for line in self._program.stdout:
            if line.startswith("exit codes"):
                codes: list[int] = json.loads(line.removeprefix("exit codes"))
                return codes
        raise RuntimeError(f"the program of the ranks ended with {self._program.wait()}")

    def close(self) -> None:
        """End the program."""
        if self._program is not None:
            self._program.communicate(timeout=60)


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Processes under torch.distributed."""
    made = Ranks()
    yield made
    made.close()
