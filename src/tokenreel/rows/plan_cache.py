"""The plans of a store: `.plans/` beside it, else in the user's cache folder (store/derived.py).

A plan has the name of what it depends on: the store's content, the split, the settings.
The content of foreign files is known by samples alone (layouts/fingerprint.py): sizes and times
of their files are in the name too. Plans of a store that was replaced stay until someone removes
`.plans/`; nothing needs them.

Windows and episodes need no plan on disk (`load_or_make`): where it cannot be kept it is
made in memory, at every start, and a warning says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenreel.canonical import digest
from tokenreel.errors import StoreError, WriteError
from tokenreel.filesystem import LOCAL, TEMPORARY_SUFFIX, FileSystem
from tokenreel.layouts.fingerprint import file_stamp
from tokenreel.rows.plan_file import (
    FORMAT,
    HEADER,
    VERSION,
    Columns,
    Plan,
    T,
    check_plan,
    open_plan,
    read_header,
    write_plan,
)
from tokenreel.rows.row_ledger import Ledger
from tokenreel.store import derived
from tokenreel.store.store import Store

FOLDER = ".plans"
KEY_CHARACTERS = 32

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

        def open_in(folder: Path) -> Plan[T]:
            return open_plan(folder / name, identity, columns, mode=self.mode)

        def make_in(folder: Path) -> Plan[T]:
            ledger: Ledger = {}
            write_plan(
                folder / name,
                make(ledger),
                columns=columns,
                identity=identity,
                ledger=ledger,
                filesystem=self.filesystem,
            )
            return open_in(folder)

        return derived.load_or_make(
            "plan",
            self.folders,
            load=lambda folder: open_in(folder) if (folder / name).exists() else None,
            make=make_in,
            filesystem=self.filesystem,
        )


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


def plan_folders(store: Store) -> tuple[Path, Path]:
    """Return where the plans of a store may lie: beside it, and among those of all stores."""
    beside = store.path if store.path.is_dir() else store.path.parent
    return beside / FOLDER, derived.cache_folder("plans")


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


def plan_problems(root: Path) -> list[StoreError]:
    """Return what is wrong with the plans in a store's folder; unfinished ones are no plans."""
    return [problem for folder in _plans(root / FOLDER) for problem in check_plan(folder)]


def store_plan_problems(store: Store) -> list[StoreError]:
    """Do the same for a store of any layout, and for its plans in the user's cache folder."""
    beside, cache = plan_folders(store)
    mine = [folder for folder in _plans(cache) if _is_of(folder, store)]
    problems = [problem for folder in mine for problem in check_plan(folder)]
    return plan_problems(beside.parent) + problems


def _plans(folder: Path) -> list[Path]:
    headers = sorted(folder.glob(f"*/{HEADER}"))
    return [h.parent for h in headers if not h.parent.name.endswith(TEMPORARY_SUFFIX)]


def _is_of(folder: Path, store: Store) -> bool:
    """Whether a plan among those of all stores is of this one; a damaged header does not say."""
    try:
        return bool(read_header(folder)["fingerprint"] == store.fingerprint)
    except (StoreError, KeyError):
        return False
