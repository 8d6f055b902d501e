"""A training run in processes of its own: started, watched, killed, waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from tokenreel.demo.step_record import Trained, read_steps
from tokenreel.errors import WorkerError
from tokenreel.progress import Progress

CHECKPOINT_STEPS = 10


class Run:
    """The ranks of one training, a thread each; leaving the block kills those that still run."""

    def __init__(self, recipe: Path, folder: Path, *, world_size: int) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._world_size = folder, world_size
        self._complaints = folder / f"{world_size}.err"
        program = (sys.executable, "-m", "tokenreel.demo.train_program", str(recipe), str(folder))
        with self._complaints.open("w") as complaints:
            self._ranks = [
                subprocess.Popen(
                    [*program, "--rank", str(rank), "--world-size", str(world_size)],
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    stdout=complaints,
                    stderr=complaints,
                )
                for rank in range(world_size)
            ]

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End every rank by SIGKILL and wait until they are gone."""
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.wait()

    def wait(self) -> None:
        """Wait until every rank has ended by itself."""
        for rank in self._ranks:
            rank.wait()

    def steps(self) -> dict[int, Trained]:
        """Return the steps that were trained so far."""
        return read_steps(self._folder, world_size=self._world_size)

    def watch(self, progress: Progress, *, start: int, stop: int) -> None:
        """Wait until the steps before `stop` are trained; WorkerError if a rank fails."""
        seen = start
        while seen < stop:
            codes = [rank.poll() for rank in self._ranks]  # before the steps are read
            done = max(self.steps(), default=start - 1) + 1
            progress.advance(min(done, stop) - seen)
            seen = min(done, stop)
            if seen < stop and any(code is not None for code in codes):
                complaint = self._complaints.read_text("utf-8", errors="replace").strip()
                raise WorkerError(
                    "a rank of the training ended early",
                    where=self._folder,
                    actual=f"exit codes {codes}: {complaint[-500:]}",
                )
            time.sleep(0.02)
