"""One builder per target.

The lock is an flock on `.build/lock`: the kernel drops it when its holder dies,
however it dies, so a dead holder is recognised without guessing. The file says
who holds it, for the message that the second builder gets.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from tokenreel.errors import BusyError, WriteError
from tokenreel.filesystem import FileSystem, take_lock


class BuildLock:
    """Hold the right to build a target until `release`."""

    def __init__(self, path: Path, *, filesystem: FileSystem) -> None:
        self.path = path
        self._filesystem = filesystem
        self._descriptor = -1
        while self._descriptor < 0:
            self._descriptor = self._try()

    def _try(self) -> int:
        folder = self.path.parent
        try:
            self._filesystem.make_dir(folder)
            descriptor = self._filesystem.open_lock(self.path)
        except WriteError as error:
            # The last holder removes the file, and its folder, at any moment.
            came_or_went = isinstance(error.__cause__, (FileExistsError, FileNotFoundError))
            if came_or_went and not folder.is_file() and not folder.is_symlink():
                return -1
            raise
        try:
            self._lock(descriptor)
            if self._is_current(descriptor):
                _sign(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return -1

    def _lock(self, descriptor: int) -> None:
        try:
            take_lock(descriptor)
        except BlockingIOError as error:
            holder = os.read(descriptor, 4096).decode(errors="replace")
            raise BusyError(
                f"another build of this target is running: {_describe(holder)}",
                where=self.path.parent.parent,
                remedy="wait for it or stop it",
            ) from error
        except OSError as error:
            raise WriteError(
                f"cannot lock: {error.strerror}",
                where=self.path,
                remedy="build in a folder whose file system has locks",
            ) from error

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let the next builder in; twice is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            self._filesystem.discard(self.path)
        finally:
            os.close(descriptor)


def _sign(descriptor: int) -> None:
    """Write down who holds the lock; it holds just as well where that fails."""
    holder = {"pid": os.getpid(), "host": socket.gethostname()}
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    except OSError:
        pass


def _describe(holder: str) -> str:
    try:
        facts = json.loads(holder)
        text = f"process {facts['pid']} on {facts['host']}"
        gone = facts["host"] == socket.gethostname() and not _is_alive(facts["pid"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return "a process that has not said who it is"
    return f"{text} (gone, but a process that it started holds on)" if gone else text


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
