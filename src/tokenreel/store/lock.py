"""One builder per target.

The lock is an flock on `.build/lock`: the kernel drops it when its holder dies,
however it dies, so a dead holder is recognised without guessing. The file says
who holds it, for the message that the second builder gets.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path

from tokenreel.errors import BusyError, WriteError


class BuildLock:
    """Hold the right to build a target until `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        while self._descriptor < 0:
            self._descriptor = self._try()

    def _try(self) -> int:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise WriteError(f"cannot lock: {error.strerror}", where=self.path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 4096).decode(errors="replace")
            os.close(descriptor)
            raise BusyError(
                f"another build of this target is running: {_describe(holder)}",
                where=self.path.parent.parent,
                remedy="wait for it or stop it",
            ) from error
        if not self._is_current(descriptor):
            os.close(descriptor)  # the last holder removed the file between open and flock
            return -1
        os.ftruncate(descriptor, 0)
        holder_now = {"pid": os.getpid(), "host": socket.gethostname()}
        os.pwrite(descriptor, json.dumps(holder_now).encode(), 0)
        return descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let the next builder in; twice is fine."""
        if self._descriptor >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def _describe(holder: str) -> str:
    try:
        facts = json.loads(holder)
        return f"process {facts['pid']} on {facts['host']}"
    except (ValueError, KeyError, TypeError):
        return "a process that has just started"
