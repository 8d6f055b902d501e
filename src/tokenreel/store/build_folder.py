"""The folder a store is built in: its plan, its lock, what is finished, what is left over.

    books/
      .build/plan.json      what is being built, so that another build cannot be mixed in
      .build/lock           who is building
      .build/*/*.chunk      what a builder has encoded ahead, each file whole (builder/spill.py)
      train/                shards of the first store built here
      train.2/              shards of the one that replaced it, and so on

A store that replaces another writes its shards into folders of the next
generation, and takes over when its manifest takes the old one's place. Readers of
the old store keep their files: they are removed when the next replacement begins,
not before. A folder's name is never used again, so that a reader of a store that
is long gone finds nothing where it might find the tokens of another.

The plan names the manifest that it replaces. A plan left behind by a build that
was committed names one that is gone, and is known by that. Beside the facts it may hold a
note for people, on which nothing depends. An unfinished build in which nothing is finished
yet, no shard and no chunk, stands in nobody's way: another simply begins.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenreel.canonical import (
    MAX_JSON_BYTES,
    canonical_bytes,
    digest,
    read_canonical,
    read_limited,
)
from tokenreel.errors import ConfigError, ExistsError, FormatError, MismatchError, WriteError
from tokenreel.filesystem import TEMPORARY_SUFFIX, FileSystem
from tokenreel.store.lock import BuildLock
from tokenreel.store.manifest import (
    MANIFEST_NAME,
    Facts,
    Manifest,
    ShardEntry,
    file_bytes,
    read_manifest,
)
from tokenreel.store.shard_record import RECORD_SUFFIX, ShardRecord, read_record
from tokenreel.store.shard_writer import shard_name

logger = logging.getLogger(__name__)

BUILD_FOLDER = ".build"
PLAN_NAME = "plan.json"
FINISHED_CHUNKS = "*/*.chunk"  # in the build folder
# What a build may remove: nothing but what a build has written.
SHARD_FOLDER = re.compile(r"(?P<split>[A-Za-z0-9][A-Za-z0-9_-]{0,63})(\.(?P<generation>\d+))?\Z")
SHARD_FILE = re.compile(
    r"shard_\d{5,}\.(bin|docs|turns|weights|origins|strings|records|objects|json)(\.tmp)?\Z"
)


class BuildTarget:
    """A folder in which one build is going on."""

    def __init__(
        self,
        path: Path,
        facts: Facts,
        *,
        replace: bool,
        restart: bool,
        filesystem: FileSystem,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self._facts = facts
        self._note = note
        self._filesystem = filesystem
        self._refuse_taken(replace)
        self._is_new = not path.exists()
        self._lock = BuildLock(self._build / "lock", filesystem=filesystem)
        try:
            self._refuse_taken(replace)
            exists = self._manifest.exists()
            self._replaced = read_limited(self._manifest) if exists else None
            self._used = _folders(read_manifest(self._manifest)) if exists else set()
            self._begin(restart)
        except BaseException:
            self.release()
            raise

    @property
    def _build(self) -> Path:
        return self.path / BUILD_FOLDER

    @property
    def _manifest(self) -> Path:
        return self.path / MANIFEST_NAME

    def _refuse_taken(self, replace: bool) -> None:
        there = next((path for path in (self.path, *self.path.parents) if path.exists()), None)
        if there is not None and not there.is_dir():
            what = "the target is a file" if there == self.path else "the target lies in a file"
            raise ConfigError(what, where=self.path, remedy="choose a folder")
        names = {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()
        if names and not names & {MANIFEST_NAME, BUILD_FOLDER}:
            raise ExistsError(
                "the folder holds other files and is not a store",
                where=self.path,
                actual=", ".join(sorted(names)[:3]),
                remedy="choose an empty or a new folder",
            )
        if MANIFEST_NAME in names and not replace:
            raise ExistsError(
                "a finished store is here; stores are never changed",
                where=self.path,
                remedy="choose another folder, or pass replace=True",
            )

    def _begin(self, restart: bool) -> None:
        plan_path = self._build / PLAN_NAME
        replaces = None if self._replaced is None else hashlib.sha256(self._replaced).hexdigest()
        begun = read_canonical(plan_path) if plan_path.exists() and not restart else None
        if begun is not None and begun.get("replaces") == replaces and self._goes_on(begun):
            logger.info("%s: continuing an unfinished build", self.path)
            return
        if plan_path.exists():
            # First the plan: a build that finds one takes the shards it finds for that plan's.
            self._filesystem.remove(plan_path)
            self._filesystem.sync_dir(self._build)
        self._remove_leftovers()
        plan: dict[str, Any] = {"facts": self._facts.as_json(), "replaces": replaces}
        if self._note is not None:
            plan["note"] = dict(self._note)
        self._filesystem.write_whole(plan_path, canonical_bytes(plan))

    def _goes_on(self, begun: dict[str, object]) -> bool:
        """Tell whether the unfinished build is this one; refuse another that has begun in earnest.

        One without a finished shard or chunk is worth nothing, and is forgotten.
        """
        facts = begun.get("facts")
        if not isinstance(facts, dict):
            raise FormatError(
                "the plan of the unfinished build is damaged",
                where=self._build / PLAN_NAME,
                remedy="pass restart=True to begin anew",
            )
        differing = _differing(facts, self._facts.as_json())
        if differing and self.has_finished_work():
            raise MismatchError(
                "an unfinished build of something else is here",
                where=self.path,
                differing=differing,
                remedy="build that one to its end, or pass restart=True to begin anew",
            )
        return not differing

    def has_finished_work(self) -> bool:
        """Tell whether the unfinished build has a finished shard or an encoded chunk."""
        return bool(self.begun_splits()) or any(self._build.glob(FINISHED_CHUNKS))

    def forget(self) -> None:
        """Remove the unfinished build, so that nothing of it stands in the way of the next.

        The folder goes too, unless it was there before or holds something else.
        """
        self._filesystem.discard(self._build / PLAN_NAME)
        self._remove_leftovers()
        for folder in _entries(self._build):
            if folder.is_dir() and not folder.is_symlink():
                self._filesystem.discard_tree(folder)
        self.release()
        if self._is_new:
            self._filesystem.remove_dir(self.path)

    def _remove_leftovers(self) -> None:
        """Remove the shards that the current manifest does not name: they belong to nobody."""
        if not self.path.exists():  # somebody has removed the whole folder
            return
        # The manifest that does not name them must not be undone by a crash from here on.
        self._filesystem.sync_dir(self.path)
        for folder in self._unused_folders():
            logger.info("%s: removing leftovers of an earlier build", folder)
            for file in _shard_files(folder):
                self._filesystem.remove(file)
            self._filesystem.sync_dir(folder)
            self._filesystem.remove_dir(folder)

    def _unused_folders(self) -> list[Path]:
        return sorted(
            entry
            for entry in _entries(self.path)
            if SHARD_FOLDER.match(entry.name)
            and entry.name not in self._used
            and entry.is_dir()
            and not entry.is_symlink()
        )

    def folder(self, split: str) -> Path:
        """Return the folder for the shards of a split, made if need be."""
        generation = 1 + max(map(_generation, self._used), default=0)
        name = split if generation == 1 else f"{split}.{generation}"
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
        for file in _shard_files(folder):
            if file.name.endswith(TEMPORARY_SUFFIX) or file.stem not in kept:
                self._filesystem.remove(file)
        # A builder that was killed may have named a record without making the name durable.
        self._filesystem.sync_dir(folder)
        return entries

    def _finished_record(self, folder: Path, number: int, split: str) -> ShardRecord | None:
        stem = shard_name(number)
        path = folder / f"{stem}{RECORD_SUFFIX}"
        if not path.exists():
            return None
        record = read_record(path)
        entry = record.entry(stem)
        sizes = {kind: file_bytes(record.facts, entry, kind) for kind in record.facts.kinds}
        whole = all(_size(folder / f"{stem}.{kind}") == size for kind, size in sizes.items())
        ours = not _differing(record.facts.as_json(), self._facts.as_json())
        same = ours and (record.split, record.number) == (split, number)
        return record if whole and same else None

    def begun_splits(self) -> set[str]:
        """Return the splits that have finished shards in this build."""
        first = f"{shard_name(0)}{RECORD_SUFFIX}"
        found = [SHARD_FOLDER.match(path.name) for path in self._unused_folders()]
        return {
            match["split"] for match in found if match and (self.path / match[0] / first).exists()
        }

    def commit(self, manifest: Manifest) -> None:
        """Make the manifest the store's; from here on the store exists."""
        data = manifest.to_bytes()
        if len(data) > MAX_JSON_BYTES:
            raise WriteError(
                "the manifest would be too large to be read",
                where=self._manifest,
                expected=f"<= {MAX_JSON_BYTES:,} bytes",
                actual=len(data),
                remedy="use larger shards",
            )
        # The folders that lead to what the manifest names: a builder that was killed may have
        # made them without making their names durable.
        self._filesystem.sync_dir(self.path.parent)
        self._filesystem.sync_dir(self.path)
        try:
            self._filesystem.write_whole(self._manifest, data)
        except BaseException:
            self._take_back(data)
            raise
        self._filesystem.discard(self._build / PLAN_NAME)

    def _take_back(self, data: bytes) -> None:
        """Undo a commit that has its name but may not last: it was not reported as done."""
        if not self._manifest.exists() or self._manifest.read_bytes() != data:
            return
        if self._replaced is None:
            self._filesystem.discard(self._manifest)
        else:
            self._filesystem.write_whole(self._manifest, self._replaced)

    def release(self) -> None:
        """Let go of the target; an unfinished build stays for the next time."""
        self._lock.release()
        try:
            self._filesystem.remove_dir(self._build)  # not with the plan of an unfinished build
        except WriteError as error:
            logger.warning("a useless folder stays: %s", error)


def _folders(manifest: Manifest) -> set[str]:
    return {Path(entry.path).parts[0] for shards in manifest.splits.values() for entry in shards}


def _generation(folder: str) -> int:
    match = SHARD_FOLDER.match(folder)
    return int(match["generation"] or 1) if match else 1


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder: nothing, where somebody has removed it during the build."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _shard_files(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if SHARD_FILE.match(entry.name))


def _differing(
    expected: dict[str, object], actual: dict[str, object]
) -> dict[str, tuple[object, object]]:
    """Return the fields that are spelled differently: 1, 1.0 and true are equal, but not here."""
    names = sorted({*expected, *actual})
    return {
        name: (expected.get(name), actual.get(name))
        for name in names
        if digest(expected.get(name)) != digest(actual.get(name))
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
