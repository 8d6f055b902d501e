"""The folder a store is built in: its plan, its lock, what is finished, what is left over.

    books/
      .build/plan.json      what is being built, so that another build cannot be mixed in
      .build/lock           who is building
      train/ or train.2/    shards; a replaced store keeps its folders until the new one is whole

A store that replaces another writes its shards into folders that the old
manifest does not name, and takes over when its manifest takes the old one's
place. Readers of the old store keep their files: they are removed when the next
replacement begins, not before.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import asdict
from pathlib import Path

from tokenreel.errors import ConfigError, ExistsError, MismatchError, differing_fields
from tokenreel.store.canonical import canonical_bytes, read_canonical
from tokenreel.store.filesystem import TEMPORARY_SUFFIX, FileSystem
from tokenreel.store.lock import BuildLock
from tokenreel.store.manifest import (
    MANIFEST_NAME,
    Facts,
    Manifest,
    ShardEntry,
    file_bytes,
    read_manifest,
)
from tokenreel.store.record import RECORD_SUFFIX, ShardRecord, read_record
from tokenreel.store.shard_writer import shard_name

logger = logging.getLogger(__name__)

BUILD_FOLDER = ".build"
PLAN_NAME = "plan.json"


class BuildTarget:
    """A folder in which one build is going on."""

    def __init__(
        self, path: Path, facts: Facts, *, replace: bool, restart: bool, filesystem: FileSystem
    ) -> None:
        self.path = path
        self._facts = facts
        self._filesystem = filesystem
        if path.exists() and not path.is_dir():
            raise ConfigError("the target is a file", where=path, remedy="choose a folder")
        self._refuse_foreign()
        path.parent.mkdir(parents=True, exist_ok=True)
        filesystem.make_dir(path)
        filesystem.make_dir(self._build)
        self._lock = BuildLock(self._build / "lock")
        try:
            self._current = self._read_current(replace)
            self._begin(restart)
        except BaseException:
            self.release()
            raise

    @property
    def _build(self) -> Path:
        return self.path / BUILD_FOLDER

    def _refuse_foreign(self) -> None:
        if not self.path.is_dir():
            return
        names = {entry.name for entry in self.path.iterdir()}
        if names and not names & {MANIFEST_NAME, BUILD_FOLDER}:
            raise ExistsError(
                "the folder holds other files and is not a store",
                where=self.path,
                actual=", ".join(sorted(names)[:3]),
                remedy="choose an empty or a new folder",
            )

    def _read_current(self, replace: bool) -> Manifest | None:
        if not (self.path / MANIFEST_NAME).exists():
            return None
        if not replace:
            raise ExistsError(
                "a finished store is here; stores are never changed",
                where=self.path,
                remedy="choose another folder, or ask to replace it",
            )
        return read_manifest(self.path / MANIFEST_NAME)

    def _begin(self, restart: bool) -> None:
        plan_path = self._build / PLAN_NAME
        plan = asdict(self._facts)
        if plan_path.exists() and not restart:
            begun = read_canonical(plan_path)
            if begun != plan:
                raise MismatchError(
                    "an unfinished build of something else is here",
                    where=self.path,
                    differing=differing_fields(begun, plan),
                    remedy="build that one to its end, or restart to begin anew",
                )
            logger.info("%s: continuing an unfinished build", self.path)
        else:
            self._remove_unused()
            self._filesystem.write_whole(plan_path, canonical_bytes(plan))

    def _remove_unused(self) -> None:
        """Remove shard folders that the current manifest does not name: they belong to nobody."""
        used = _folders(self._current)
        for entry in sorted(self.path.iterdir()):
            if entry.is_dir() and entry.name not in used and entry.name != BUILD_FOLDER:
                logger.info("%s: removing leftovers of an earlier build", entry)
                shutil.rmtree(entry)

    def folder(self, split: str) -> Path:
        """Return the folder for the shards of a split, made if need be."""
        used = _folders(self._current)
        name = split if split not in used else f"{split}.2"
        self._filesystem.make_dir(self.path / name)
        return self.path / name

    def finished(self, split: str) -> list[ShardEntry]:
        """Return the finished shards of a split up to the last that ends with a document's end.

        What lies behind them (temporaries, a shard without its record) is removed.
        """
        folder = self.folder(split)
        entries: list[ShardEntry] = []
        while (record := self._finished_record(folder, len(entries), split)) is not None:
            entries.append(record.entry(f"{folder.name}/{shard_name(len(entries))}"))
        while entries and entries[-1].continues:
            entries.pop()
        kept = {Path(entry.path).name for entry in entries}
        for leftover in folder.iterdir():
            if leftover.name.endswith(TEMPORARY_SUFFIX) or leftover.stem not in kept:
                self._filesystem.remove(leftover)
        return entries

    def _finished_record(self, folder: Path, number: int, split: str) -> ShardRecord | None:
        stem = shard_name(number)
        path = folder / f"{stem}{RECORD_SUFFIX}"
        if not path.exists():
            return None
        record = read_record(path)
        entry = record.entry(stem)
        sizes = {kind: file_bytes(self._facts, entry, kind) for kind in self._facts.kinds}
        whole = all(_size(folder / f"{stem}.{kind}") == size for kind, size in sizes.items())
        same = (record.facts, record.split, record.number) == (self._facts, split, number)
        return record if whole and same else None

    def commit(self, manifest: Manifest) -> None:
        """Make the manifest the store's; from here on the store exists."""
        self._filesystem.write_whole(self.path / MANIFEST_NAME, manifest.to_bytes())
        self._filesystem.remove(self._build / PLAN_NAME)

    def release(self) -> None:
        """Let go of the target; an unfinished build stays for the next time."""
        self._lock.release()
        try:
            self._build.rmdir()
        except OSError:
            pass  # the plan of an unfinished build is still in it


def _folders(manifest: Manifest | None) -> set[str]:
    if manifest is None:
        return set()
    return {Path(entry.path).parts[0] for shards in manifest.splits.values() for entry in shards}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
