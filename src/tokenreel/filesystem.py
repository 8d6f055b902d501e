"""Every change that tokenreel makes on disk goes through one object.

    write_whole, whole_file   a file that is there whole or not at all
    whole_folder              a folder that is
    create, rename, remove …  the operations that these consist of

What is to appear is written under a temporary name beside its own and made durable, then
renamed; at last its folder is synced, which makes the name durable. A temporary folder is held
by an flock, which the kernel drops when its holder dies, however it dies. So the next one knows
what the dead have left, and removes it; on a disk without locks it does so after a day.

`FileSystem.observe` is called before each operation, so a test can count the
operations of a build, make the k-th one fail, or stop the world there. Reading
is plain: what is read is checked anyway. Only what nothing relies on is written without it: the
files of the demo, those in a temporary folder of the system, the name of who holds a lock, and
what a worker of a build is at, should it die (builder/encode.py).

An OSError becomes a WriteError that names the file and the operation. A failed
fsync is never retried: after it, the kernel may already have dropped the pages.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tokenreel import native
from tokenreel.errors import ExistsError, WriteError

logger = logging.getLogger(__name__)

T = TypeVar("T")
TEMPORARY_SUFFIX = ".tmp"
LEFTOVER_SECONDS = 24 * 3600  # where nothing can be locked, what is younger may be in use
ATTEMPTS = 5  # to make a folder before another process takes it for a leftover
COPY_BYTES = 4 * 1024 * 1024
REMEDIES = {
    errno.ENOSPC: "free some space and run the same again: what is finished is kept",
    errno.EDQUOT: "free some quota and run the same again: what is finished is kept",
    errno.EACCES: "check the permissions of the folder",
    errno.EPERM: "check the permissions of the folder",
    errno.EROFS: "the file system is read-only, choose another folder",
}
REMEDY = "see to the disk and run the same again: what is finished is kept"


class FileSystem:
    """The file system of this machine."""

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        """Be told of an operation before it happens; the real file system does not mind."""

    def create(self, path: Path) -> OutputFile:
        """Create an empty file for appending; a leftover of the same name is replaced."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return OutputFile(self, path, self.do("create", path, lambda: os.open(path, flags, 0o644)))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name, replacing what had it."""
        self.do("rename", source, lambda: source.replace(target), target=target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        self.do("link", source, lambda: target.hardlink_to(source), target=target)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        self.do("remove", path, lambda: path.unlink(missing_ok=True))

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
        self.do("make_dir", path, lambda: path.mkdir(exist_ok=True))
        self.sync_dir(path.parent)

    def remove_dir(self, path: Path) -> None:
        """Remove a folder, if it is there and empty."""
        self.do("remove_dir", path, lambda: _remove_empty(path))

    def remove_tree(self, path: Path) -> None:
        """Remove a file, or a folder and all in it; another process may do so as well."""
        if path.is_dir() and not path.is_symlink():
            with suppress(FileNotFoundError):
                for entry in sorted(path.iterdir()):
                    self.remove_tree(entry)
            self.remove_dir(path)
        elif os.path.lexists(path):
            self.remove(path)

    def discard_tree(self, path: Path) -> None:
        """Remove what is of no use any more; where that fails the rest is left, harmless."""
        try:
            self.remove_tree(path)
        except WriteError as error:
            logger.warning("a useless folder stays: %s", error)

    def open_lock(self, path: Path) -> int:
        """Return the descriptor of a file that is there to be locked, made if need be."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        return self.do("lock", path, lambda: os.open(path, flags, 0o644))

    def sync_dir(self, path: Path) -> None:
        """Make the names in a folder durable."""
        self.do("sync_dir", path, lambda: _sync(path))

    def write_whole(self, path: Path, data: bytes) -> None:
        """Write a small file so that it appears whole or not at all."""
        with self.whole_file(path) as output:
            output.write(data)

    @contextmanager
    def whole_file(self, path: Path, *, temporary: Path | None = None) -> Iterator[OutputFile]:
        """Yield a file to write; leaving the block without an error gives it its name.

        Where two processes may write it at once, each needs a `temporary` of its own: unique_name.
        """
        temporary = temporary or temporary_name(path)
        try:
            with self.create(temporary) as output:
                yield output
                output.sync()
            self.rename(temporary, path)
        except BaseException:
            self.discard(temporary)
            raise
        self.sync_dir(path.parent)

    @contextmanager
    def whole_folder(self, target: Path) -> Iterator[Path]:
        """Yield a folder to write into; leaving the block without an error makes it the target.

        The files in it are durable by then (OutputFile.finish); nothing is overwritten.
        """
        target = target.absolute()  # "." has no name of its own
        _refuse_existing(target)
        self.make_dir(target.parent)
        self.remove_leftovers(target.parent, f".{escape(target.name)}.????????{TEMPORARY_SUFFIX}")
        with self.temporary_folder(target) as folder:
            yield folder
            for entry in sorted(folder.iterdir()):
                if entry.is_dir():
                    self.sync_dir(entry)
            self.sync_dir(folder)
            _refuse_existing(target)
            self.rename(folder, target)
            self.sync_dir(target.parent)

    @contextmanager
    def temporary_folder(self, target: Path) -> Iterator[Path]:
        """Yield a new folder beside the target, held; if it is still there at the end, it goes."""
        with ExitStack() as stack:
            yield self._new_folder(target, stack)

    def _new_folder(self, target: Path, stack: ExitStack) -> Path:
        for _ in range(ATTEMPTS):
            folder = unique_name(target)
            with ExitStack() as attempt:
                attempt.callback(self.discard_tree, folder)
                self.make_dir(folder)
                try:
                    attempt.enter_context(held(folder))
                except (BlockingIOError, FileNotFoundError):
                    continue  # before it was locked, another process took it for a leftover
                except OSError:
                    pass  # there are no locks here: its age says that it is in use
                if folder.exists():
                    stack.push(attempt.pop_all())
                    return folder
        raise WriteError(
            "cannot lock a new folder",
            where=target.parent,
            remedy="write to a file system that has locks",
        )

    def remove_leftovers(self, folder: Path, pattern: str = f"*{TEMPORARY_SUFFIX}") -> None:
        """Remove what processes that died have left in a folder under temporary names."""
        for leftover in sorted(folder.glob(pattern)):
            with ExitStack() as stack:
                try:
                    stack.enter_context(held(leftover))
                except (BlockingIOError, FileNotFoundError):
                    continue  # its process lives, or another one removes it
                except OSError:
                    if not _is_old(leftover):
                        continue
                logger.info("%s: removing what an interrupted process left", leftover)
                self.discard_tree(leftover)

    def do(
        self, operation: str, path: Path, act: Callable[[], T], *, target: Path | None = None
    ) -> T:
        """Do one operation and return what it returns; an OSError becomes a WriteError."""
        try:
            self.observe(operation, path, target=target)
            return act()
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
        self.num_bytes = 0

    def write(self, data: bytes | memoryview | np.ndarray) -> None:
        """Append all bytes of `data`."""
        view = np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else memoryview(data)
        if not view.nbytes:
            return
        self._filesystem.do("write", self.path, lambda: _write_all(self._descriptor, view))
        self.num_bytes += view.nbytes

    def append_file(self, path: Path) -> None:
        """Append all of another file, a few megabytes at a time."""
        with path.open("rb") as source:
            while part := source.read(COPY_BYTES):
                self.write(part)

    def hasten(self) -> None:
        """Let the disk begin with what was written, so that `sync` has less to wait for."""
        extension = native.extension()
        if extension is not None and self._descriptor >= 0:
            extension.start_writeback(self._descriptor)

    def sync(self) -> None:
        """Make what was written durable."""
        self._filesystem.do("sync", self.path, lambda: os.fsync(self._descriptor))

    def finish(self) -> None:
        """Make the file durable and close it."""
        self.sync()
        self.close()

    def close(self) -> None:
        """Close the file, durable or not; twice is fine."""
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
        return OutputFile(self, path, -1)

    def make_dir(self, path: Path) -> None:
        """Do nothing."""

    def do(
        self, operation: str, path: Path, act: Callable[[], T], *, target: Path | None = None
    ) -> Any:
        """Do nothing."""


LOCAL = FileSystem()
NOWHERE = Nowhere()


def temporary_name(path: Path) -> Path:
    """Return the name a file has until it is whole, where one process at a time writes it."""
    return path.with_name(path.name + TEMPORARY_SUFFIX)


def unique_name(path: Path) -> Path:
    """Return a temporary name that no other process uses."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")


@contextmanager
def held(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a file or folder; BlockingIOError if another process does.

    wait: until the other one lets go. OSError where the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        take_lock(descriptor, wait=wait)
        yield
    finally:
        with suppress(OSError):  # a child that was forked meanwhile would hold on to it
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def take_lock(descriptor: int, *, wait: bool = False) -> None:
    """Lock an open file against all other processes, until it is closed."""
    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _write_all(descriptor: int, data: memoryview) -> None:
    rest = data.cast("B")
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > LEFTOVER_SECONDS
    except OSError:
        return False


def _refuse_existing(target: Path) -> None:
    is_empty = target.is_dir() and not any(target.iterdir())
    if target.is_symlink() or (target.exists() and not is_empty):
        raise ExistsError(
            "the target exists; nothing is overwritten",
            where=target,
            remedy="choose another folder, or remove this one",
        )
