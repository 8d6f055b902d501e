"""Where the plans of a store are kept: `.plans/` in the store, else the user's cache folder.

A plan has the name of what it depends on: the store's content, the split, the settings.
So a plan never has to be declared out of date. The content of foreign files is known by
samples alone (layouts/fingerprint.py): sizes and times of their files are in the name too. Of
processes that need the same plan at the same time, such as the ranks of a run, one makes it
while the others wait; where folders cannot be locked each makes it, and they end with the
same bytes. A damaged plan is made again. Plans of a store that was replaced stay until
someone removes `.plans/`; nothing needs them.

Windows and episodes need no plan on disk (`load_or_make`): where it cannot be kept it is
made in memory, at every start, and a warning says why.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tokenreel.canonical import digest
from tokenreel.errors import StoreError, WriteError
from tokenreel.filesystem import LOCAL, FileSystem
from tokenreel.layouts.fingerprint import file_stamp
from tokenreel.rows.columns import Columns, T
from tokenreel.rows.plan_file import (
    FORMAT,
    LEFTOVER_SECONDS,
    VERSION,
    Ledger,
    Plan,
    open_plan,
    write_plan,
)
from tokenreel.store.store import Store

FOLDER = ".plans"
KEY_CHARACTERS = 32
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCache:
    """The folders in which plans of one store are looked for; the first that can be is written.

    stamp: of foreign files, a digest of their sizes and times. mode: pread, and no plan is mapped.
    """

    fingerprint: str
    folders: tuple[Path, ...]
    stamp: str | None = None
    mode: str = "mmap"
    filesystem: FileSystem = LOCAL

    def load(
        self,
        split: str,
        settings: Mapping[str, object],
        *,
        columns: Columns[T],
        make: Callable[[Ledger], Iterable[T]],
    ) -> Plan[T]:
        """Return a plan, made if it is not there; `make` yields its blocks and fills the ledger."""
        identity: dict[str, object] = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "split": split,
            "settings": dict(settings),
        }
        if self.stamp is not None:
            identity["stamp"] = self.stamp
        name = digest(identity)[:KEY_CHARACTERS]
        for folder in self.folders:
            if (folder / name).exists():
                try:
                    return open_plan(folder / name, identity, columns, mode=self.mode)
                except StoreError as error:
                    logger.warning("a damaged plan is made again: %s", error)
        for folder in self.folders:
            try:
                return self._make(folder / name, identity, columns, make)
            except WriteError as error:
                if folder == self.folders[-1] or not _is_read_only(error):
                    raise
        raise WriteError("there is no folder to keep a plan in")

    def _make(
        self,
        folder: Path,
        identity: Mapping[str, object],
        columns: Columns[T],
        make: Callable[[Ledger], Iterable[T]],
    ) -> Plan[T]:
        self.filesystem.make_dir(folder.parent)
        with _turn_in(folder.parent) as is_alone:
            with suppress(StoreError):  # the one that was waited for may have made it
                return open_plan(folder, identity, columns, mode=self.mode)
            ledger: Ledger = {}
            write_plan(
                folder,
                make(ledger),
                columns=columns,
                identity=identity,
                ledger=ledger,
                filesystem=self.filesystem,
                # Whoever has the turn is the only one alive: what is there was left by the dead.
                leftover_seconds=-math.inf if is_alone else LEFTOVER_SECONDS,
            )
            return open_plan(folder, identity, columns, mode=self.mode)


def load_or_make(
    cache: PlanCache | None,
    split: str,
    settings: Mapping[str, object],
    *,
    columns: Columns[T],
    make: Callable[[Ledger], Iterable[T]],
) -> Plan[T]:
    """Return a plan from the cache, or one in memory where there is none or it cannot be kept."""
    if cache is not None:
        try:
            return cache.load(split, settings, columns=columns, make=make)
        except WriteError as error:
            logger.warning("rows are planned at every start, as the plan is not kept: %s", error)
    ledger: Ledger = {}
    return Plan(content=columns.join(make(ledger)), ledger=ledger, folder=None)


@contextmanager
def _turn_in(folder: Path) -> Iterator[bool]:
    """Wait until nobody else plans in a folder; where it cannot be locked, say so: False."""
    descriptor, is_alone = -1, False
    try:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            is_alone = True
        yield is_alone
    finally:
        if descriptor >= 0:
            with suppress(OSError):  # a child forked meanwhile would hold on to it
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _is_read_only(error: WriteError) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in READ_ONLY


def plan_folders(store: Store) -> tuple[Path, Path]:
    """Return where the plans of a store may lie: beside it, and among those of all stores."""
    beside = store.path if store.path.is_dir() else store.path.parent
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return beside / FOLDER, Path(base) / "tokenreel" / "plans"


def plan_cache(store: Store, *, filesystem: FileSystem = LOCAL) -> PlanCache:
    """Return the place for the plans of a store."""
    shards = [shard for split in store.splits.values() for shard in split.shards]
    return PlanCache(
        fingerprint=store.fingerprint,
        folders=plan_folders(store),
        stamp=None if store.manifest is not None else file_stamp(shards),
        mode=shards[0].mode,
        filesystem=filesystem,
    )
