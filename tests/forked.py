"""Run programs whose imports take longer than they do: import once, then fork.

    python -m tests.forked MODULE …

A `Forks` starts that. Its process imports the modules and does nothing else, so it stays as
an interpreter that has just imported them; every program is then the `__main__` of a process
forked from there, with its own words, environment, folder and output.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[1]


class Forks:
    """A process that has imported some modules, and what is forked from it."""

    def __init__(self, *modules: str, folder: Path, environment: Mapping[str, str]) -> None:
        """Start it; what programs print is kept in `folder`."""
        self._folder = folder
        self._num_forked = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", *modules],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self, *words: object, environment: Mapping[str, object] | None = None, cwd: Path = ROOT
    ) -> Forked:
        """Start `python WORD …`, where the first word is a file, or "-m" and a module follows."""
        self._num_forked += 1
        out = self._folder / f"{self._num_forked}.out"
        forked = Forked(forks=self, out=out, err=out.with_suffix(".err"))
        for path in (forked.out, forked.err):
            path.touch()
        variables = {name: str(value) for name, value in (environment or {}).items()}
        job = {"words": list(map(str, words)), "environment": variables, "cwd": str(cwd)}
        forked.process = self.ask({**job, "out": str(forked.out), "err": str(forked.err)})
        return forked

    def ask(self, job: dict[str, Any]) -> int:
        """Have a job done: its answer is a number."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=60)


@dataclass(slots=True, kw_only=True)
class Forked:
    """A program that was started."""

    forks: Forks
    out: Path
    err: Path
    process: int = 0

    def printed(self) -> str:
        """Return what it has printed so far."""
        return self.out.read_text()

    def complaints(self) -> str:
        """Return what it has written to its standard error so far."""
        return self.err.read_text()

    def wait(self) -> int:
        """Wait for its end and return its exit code; that of a signal is negative."""
        return self.forks.ask({"wait": self.process})

    def kill(self) -> None:
        """Kill it; it must have been alive."""
        os.kill(self.process, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def finish(self) -> str:
        """Wait for its end and return what it printed; it must have gone well."""
        code = self.wait()
        assert code == 0, self.complaints()[-3000:]
        return self.printed()


def become(job: dict[str, Any]) -> None:
    """Be what `python WORD …` is."""
    for stream, path in ((sys.stdout, job["out"]), (sys.stderr, job["err"])):
        with Path(path).open("w") as file:
            os.dup2(file.fileno(), stream.fileno())
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.environ.update(job["environment"])
    os.chdir(job["cwd"])
    if job["words"][0] == "-m":
        _, *sys.argv = job["words"]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = job["words"]
        runpy.run_path(sys.argv[0], run_name="__main__")


def main() -> None:
    """Import, then fork and wait as asked."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # or each of them would look through all that was imported, and take it down
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            _, status = os.waitpid(job["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
        elif process := os.fork():
            print(process, flush=True)
        else:
            become(job)
            return


if __name__ == "__main__":
    main()
