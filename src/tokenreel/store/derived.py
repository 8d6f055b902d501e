"""What is derived from stores and kept from one run to the next: row plans, documents by end token.

It lies in a hidden folder beside what it was made from, or, where nothing can be written there,
under $XDG_CACHE_HOME/tokenreel (~/.cache/tokenreel). Of processes that need the same thing at
the same time, such as the ranks of a run, one makes it while the others wait; where folders
cannot be locked each makes it, and they end with the same bytes. What was damaged is made again,
what killed processes have left unfinished is removed.

Nothing here is ever declared out of date: each thing says of what it was made, and whoever loads
it holds that, and a checksum of its bytes, against what is there now.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from tokenreel.errors import StoreError, WriteError
from tokenreel.filesystem import FileSystem, held

logger = logging.getLogger(__name__)

T = TypeVar("T")
# The folder is not ours to write to; anything else (no space, a failing disk) is an error.
ELSEWHERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR)


def cache_folder(*names: str) -> Path:
    """Return a folder among what is kept for all stores of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "tokenreel", *names)


def load_or_make(
    what: str,
    folders: Sequence[Path],
    *,
    load: Callable[[Path], T | None],
    make: Callable[[Path], T],
    filesystem: FileSystem,
) -> T:
    """Return what one of the folders has, or what is made in the first that can be written to.

    load: from a folder; None if it is not there, StoreError if it is damaged. make: into one.
    """
    for folder in folders:
        try:
            found = load(folder)
        except StoreError as error:
            logger.warning("a damaged %s is made again: %s", what, error)
            continue
        if found is not None:
            return found
    for folder in folders[:-1]:
        try:
            return _make_in(folder, load, make, filesystem)
        except WriteError as error:
            if getattr(error.__cause__, "errno", None) not in ELSEWHERE:
                raise
            logger.info("%s cannot be written to: the %s is kept in %s", folder, what, folders[-1])
    return _make_in(folders[-1], load, make, filesystem)


def _make_in(
    folder: Path,
    load: Callable[[Path], T | None],
    make: Callable[[Path], T],
    filesystem: FileSystem,
) -> T:
    filesystem.make_dir(folder)
    with ExitStack() as turn:
        with suppress(OSError):  # without locks, several may be at work here
            turn.enter_context(held(folder, wait=True))
        with suppress(StoreError):  # the one that was waited for may have made it
            found = load(folder)
            if found is not None:
                return found
        filesystem.remove_leftovers(folder)
        return make(folder)
