"""The columns of a plan on disk, held against their SHA-256.

Up to 64 MiB are read when the plan is opened and hashed in memory, 45 ms at most; nothing
that happens to the files later reaches them. Larger plans are mapped, or read where the
store is opened with mode pread, and hashed on a second thread while the run begins, once in a
process. What is
found wrong there is raised by the next batch (feed/watch.py).
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tokenreel.errors import DamageError, TokenreelError
from tokenreel.store.file_arrays import ArrayFile

AT_ONCE_BYTES = 64 * 1024 * 1024
HASHED_BYTES = 1 << 22
REMEDY = "remove the folder: the plan is made again when it is needed"

logger = logging.getLogger(__name__)

# Files that were found good, or are being looked at, by what they were then; a forked process
# goes on with neither thread nor verdict.
_seen: set[tuple[object, ...]] = set()
_damaged: dict[Path, TokenreelError] = {}


def load_columns(
    files: Sequence[ArrayFile], digests: Mapping[str, str], *, mode: str
) -> dict[str, np.ndarray]:
    """Return the columns by name, or raise DamageError if they fail their checksums."""
    keys = {file.path.name: _key(file, digests[file.path.name]) for file in files}
    unseen = [file for file in files if keys[file.path.name] not in _seen]
    for file in unseen:
        _damaged.pop(file.path.parent, None)  # what was wrong was of files that were here before
    in_memory = mode == "pread" or sum(file.file_bytes for file in files) <= AT_ONCE_BYTES
    columns = {file.path.name: file.whole("pread" if in_memory else mode) for file in files}
    for column in columns.values():
        column.flags.writeable = False

    def check(file: ArrayFile) -> None:
        name = file.path.name
        if in_memory:
            compare(hashlib.sha256(columns[name].data).hexdigest(), digests[name], file)
        else:
            check_bytes(file, digests[name])
        _seen.add(keys[name])

    # What was read just now is hashed each time: a file may have been changed in place, with its
    # time put back. Of large files those are hashed that were not seen before.
    wanted = files if sum(file.file_bytes for file in files) <= AT_ONCE_BYTES else unseen
    if sum(file.file_bytes for file in wanted) > AT_ONCE_BYTES:
        _seen.update(keys.values())
        _do_later(check, wanted)
    else:
        for file in wanted:
            check(file)
    return columns


def _key(file: ArrayFile, digest: str) -> tuple[object, ...]:
    try:
        found = file.path.stat()
    except OSError:
        file.check_size()  # which says what is wrong
        raise
    return os.getpid(), file.path, found.st_ino, found.st_size, found.st_mtime_ns, digest


def _do_later(check: Callable[[ArrayFile], None], files: Sequence[ArrayFile]) -> None:
    def check_all() -> None:
        for file in files:
            try:
                check(file)
            except TokenreelError as error:
                logger.error("%s", error)
                _damaged[file.path.parent] = error

    threading.Thread(target=check_all, name="tokenreel-verify", daemon=True).start()


def raise_damage(folders: Sequence[Path]) -> None:
    """Raise what was found wrong with the plans in these folders since they were opened."""
    if _damaged:  # nearly never, and asked for every batch
        for folder in folders:
            if folder in _damaged:
                raise _damaged[folder]


def check_bytes(file: ArrayFile, expected: str) -> None:
    """Raise DamageError unless the bytes of a file have this SHA-256."""
    hasher = hashlib.sha256()
    step = max(HASHED_BYTES // file.dtype.itemsize, 1)
    for start in range(0, file.count, step):
        hasher.update(file.read(start, min(start + step, file.count)).data)
    compare(hasher.hexdigest(), expected, file)


def compare(actual: str, expected: str, file: ArrayFile) -> None:
    """Raise DamageError unless a file has the digest that its header vouches for."""
    if actual != expected:
        raise DamageError(
            "the file fails its checksum",
            where=file.path,
            expected=expected,
            actual=actual,
            remedy=REMEDY,
        )
