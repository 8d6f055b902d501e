"""Every change that tokenreel makes on disk goes through one object.

`FileSystem.observe` is called before each operation, so a test can count the
operations of a build, make the k-th one fail, or stop the world there. Reading
is plain: what is read is checked anyway.

An OSError becomes a WriteError that names the file and the operation. A failed
fsync is never retried: after it, the kernel may already have dropped the pages.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenreel import native
from tokenreel.errors import WriteError

logger = logging.getLogger(__name__)

REMEDIES = {
    errno.ENOSPC: "free some space and build again, finished shards are kept",
    errno.EDQUOT: "free some quota and build again, finished shards are kept",
    errno.EACCES: "check the permissions of the folder",
    errno.EPERM: "check the permissions of the folder",
    errno.EROFS: "the file system is read-only, choose another folder",
}
REMEDY = "see to the disk and build again, finished shards are kept"


class FileSystem:
    """The file system of this machine."""

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        """Be told of an operation before it happens; the real file system does not mind."""

    def create(self, path: Path) -> OutputFile:
        """Create an empty file for appending; a leftover of the same name is replaced."""
        with self._reporting("create", path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
            return OutputFile(self, path, os.open(path, flags, 0o644))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name, replacing what had it."""
        with self._reporting("rename", source, target=target):
            source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        with self._reporting("remove", path):
            path.unlink(missing_ok=True)

    def discard(self, path: Path) -> None:
        """Remove a file that is of no use any more; where that fails it is left, harmless."""
        try:
            self.remove(path)
        except WriteError as error:
            logger.warning("a useless file stays: %s", error)

    def make_dir(self, path: Path) -> None:
        """Make a folder, and those above it, durable."""
        if path.is_dir():
            return
        self.make_dir(path.parent)
        with self._reporting("make_dir", path):
            path.mkdir(exist_ok=True)
        self.sync_dir(path.parent)

    def remove_dir(self, path: Path) -> None:
        """Remove a folder, if it is there and empty."""
        with self._reporting("remove_dir", path):
            try:
                path.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def open_lock(self, path: Path) -> int:
        """Return the descriptor of a file that is there to be locked, made if need be."""
        with self._reporting("lock", path):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def sync_dir(self, path: Path) -> None:
        """Make the names in a folder durable."""
        with self._reporting("sync_dir", path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def write_whole(self, path: Path, data: bytes) -> None:
        """Write a small file so that it appears whole or not at all."""
        temporary = temporary_name(path)
        try:
            with self.create(temporary) as output:
                output.write(data)
                output.sync()
            self.rename(temporary, path)
        except BaseException:
            self.discard(temporary)
            raise
        self.sync_dir(path.parent)

    @contextmanager
    def _reporting(
        self, operation: str, path: Path, *, target: Path | None = None
    ) -> Iterator[None]:
        try:
            self.observe(operation, path, target=target)
            yield
        except OSError as error:
            raise WriteError(
                f"{operation.replace('_', ' ')} failed: {error.strerror or error}",
                where=path,
                remedy=REMEDIES.get(error.errno or 0, REMEDY),
            ) from error


class OutputFile:
    """A file that is only appended to."""

    def __init__(self, filesystem: FileSystem, path: Path, descriptor: int) -> None:
        self._filesystem = filesystem
        self._descriptor = descriptor
        self.path = path

    def write(self, data: bytes | memoryview) -> None:
        """Append all of `data`."""
        with self._filesystem._reporting("write", self.path):
            view = memoryview(data).cast("B")
            while len(view):
                view = view[os.write(self._descriptor, view) :]

    def hasten(self) -> None:
        """Let the disk begin with what was written, so that `sync` has less to wait for."""
        extension = native.extension()
        if extension is not None:
            extension.start_writeback(self._descriptor)

    def sync(self) -> None:
        """Make what was written durable."""
        with self._filesystem._reporting("sync", self.path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; twice is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Nowhere(FileSystem):
    """Take everything and keep nothing: what is written here is only hashed on its way."""

    def create(self, path: Path) -> OutputFile:
        """Return a file that forgets."""
        return _Forgetful(self, path, -1)

    def rename(self, source: Path, target: Path) -> None:
        """Do nothing."""

    def remove(self, path: Path) -> None:
        """Do nothing."""

    def make_dir(self, path: Path) -> None:
        """Do nothing."""

    def remove_dir(self, path: Path) -> None:
        """Do nothing."""

    def sync_dir(self, path: Path) -> None:
        """Do nothing."""


class _Forgetful(OutputFile):
    def write(self, data: bytes | memoryview) -> None:
        pass

    def hasten(self) -> None:
        pass

    def sync(self) -> None:
        pass


LOCAL = FileSystem()
NOWHERE = Nowhere()
TEMPORARY_SUFFIX = ".tmp"


def temporary_name(path: Path) -> Path:
    """Return the name a file has until it is whole."""
    return path.with_name(path.name + TEMPORARY_SUFFIX)
