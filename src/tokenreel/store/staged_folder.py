"""A folder that appears whole or not at all.

Files are written into `.NAME.XXXXXXXX.tmp` beside the target; when all of them are
durable, one rename gives the folder its name. The folder is held by an flock, so
what a killed process left behind is recognised and removed by the next one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path

import numpy as np

from tokenreel.errors import ExistsError, WriteError
from tokenreel.filesystem import TEMPORARY_SUFFIX, FileSystem, OutputFile
from tokenreel.store.narrow import OutOfVocabularyError, narrow

logger = logging.getLogger(__name__)

NARROW_TOKENS = 1024 * 1024  # cast this many ids at a time: a mapped giant is never in memory whole
COPY_BYTES = 4 * 1024 * 1024
ATTEMPTS = 5


@contextmanager
def staged_folder(target: Path, filesystem: FileSystem) -> Iterator[Path]:
    """Yield a folder to write into; leaving the block without an error makes it the target."""
    target = target.absolute()  # "." has no name of its own
    _refuse_existing(target)
    filesystem.make_dir(target.parent)
    _remove_leftovers(target)
    with ExitStack() as stack:
        folder = _new_folder(target, filesystem, stack)
        yield folder
        _sync_folders(folder, filesystem)
        _refuse_existing(target)
        filesystem.rename(folder, target)
        filesystem.sync_dir(target.parent)


def _new_folder(target: Path, filesystem: FileSystem, stack: ExitStack) -> Path:
    """Make a folder and hold its lock; the stack lets go of it and removes what is still there."""
    for _ in range(ATTEMPTS):
        folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
        with ExitStack() as attempt:
            attempt.callback(shutil.rmtree, folder, ignore_errors=True)
            filesystem.make_dir(folder)
            # Before it is locked, another process takes it for a leftover: then make another.
            with suppress(OSError):
                attempt.enter_context(_held(folder))
                if folder.exists():
                    stack.push(attempt.pop_all())
                    return folder
    raise WriteError(
        "cannot lock a new folder",
        where=target.parent,
        remedy="write to a file system that has locks",
    )


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; BlockingIOError (an OSError) if another process does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _refuse_existing(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not _is_empty_folder(target)):
        raise ExistsError(
            "the target exists; nothing is overwritten",
            where=target,
            remedy="choose another folder, or remove this one",
        )


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _remove_leftovers(target: Path) -> None:
    for leftover in target.parent.glob(f".{escape(target.name)}.????????{TEMPORARY_SUFFIX}"):
        with suppress(OSError), _held(leftover):
            logger.info("%s: removing what an interrupted conversion left", leftover)
            shutil.rmtree(leftover)


def _sync_folders(folder: Path, filesystem: FileSystem) -> None:
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            filesystem.sync_dir(entry)
    filesystem.sync_dir(folder)


class StreamFile:
    """A file of the staged folder: appended to, then made durable by `finish`."""

    def __init__(self, path: Path, filesystem: FileSystem) -> None:
        self.path = path
        self.num_bytes = 0
        if not path.parent.exists():
            filesystem.make_dir(path.parent)
        self._output: OutputFile = filesystem.create(path)

    def write(self, values: np.ndarray | bytes) -> None:
        """Append the bytes of an array."""
        data = values if isinstance(values, bytes) else np.ascontiguousarray(values).data
        view = memoryview(data)
        if view.nbytes:
            self._output.write(view.cast("B"))
            self.num_bytes += view.nbytes

    def append_file(self, path: Path) -> None:
        """Append all of another file, a few megabytes at a time."""
        with path.open("rb") as source:
            while piece := source.read(COPY_BYTES):
                self.write(piece)

    def finish(self) -> None:
        """Make the file durable."""
        self._output.sync()
        self._output.close()

    def close(self) -> None:
        """Let go of the file, durable or not; twice is fine."""
        self._output.close()


def narrowed(ids: np.ndarray, dtype: np.dtype, *, limit: int, where: str) -> Iterator[np.ndarray]:
    """Yield the ids as `dtype`, a million at a time; one outside the vocabulary is an error."""
    for start in range(0, len(ids), NARROW_TOKENS):
        try:
            yield narrow(ids[start : start + NARROW_TOKENS], dtype, limit=limit)
        except OutOfVocabularyError as error:
            raise error.located(where, position=start + error.position) from None
