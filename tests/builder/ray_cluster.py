"""A real Ray cluster in processes of its own: head and further nodes, token, folder, free ports."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Ray reaches its processes by socket files, whose paths may have 107 bytes and no more.
SHORT = "/tmp"
START = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
HEAD = ["--head", "--port=0", "--include-dashboard=false"]
STARTED = b"Ray runtime started"
# A node that is gone is noticed after 15 seconds; here it shall not take that long.
NOTICE = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "2"}


class Cluster:
    """A head and the nodes that are added; `close` leaves neither processes nor files."""

    def __init__(self, *, num_cpus: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="reel-", dir=SHORT))
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
        self.environment = {
            **inherited,
            "RAY_TMPDIR": str(self.folder),  # "auto" looks here for the cluster that was started
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "5ec2e7" * 10,
        }
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._start(*HEAD, f"--num-cpus={num_cpus}")
        self.address = (self.folder / "ray" / "ray_current_cluster").read_text().strip()

    def add_node(self, *, num_cpus: int) -> int:
        """Start a node and return its name."""
        return self._start(f"--address={self.address}", f"--num-cpus={num_cpus}")

    def num_drivers(self) -> int:
        """Return how many programs have used the cluster so far."""
        return len(list(self.folder.glob("ray/session_2*/logs/python-core-driver-*")))

    def owns(self, node: int, pid: int) -> bool:
        """Tell whether a process belongs to a node."""
        return pid in _session(node)

    def kill_node(self, node: int) -> None:
        """Let a node die as a machine dies: all of it, at once."""
        for pid in _session(node):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self) -> None:
        """End every process and remove every file."""
        for node in self._nodes:
            while _session(node.pid):
                self.kill_node(node.pid)
                time.sleep(0.05)
            node.wait()
        shutil.rmtree(self.folder)

    def _start(self, *words: str) -> int:
        path = self.folder / f"{len(self._nodes)}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [*START, *words],
                env={**self.environment, **NOTICE},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._nodes.append(process)
        while STARTED not in path.read_bytes():
            if process.poll() is not None:
                raise ChildProcessError(path.read_text())
            time.sleep(0.05)
        return process.pid


def _session(leader: int) -> list[int]:
    """Return the living processes of a session; Ray leaves workers in that of their node."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = status.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(int(status.parent.name))
    return found
