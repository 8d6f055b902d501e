"""A file system on which the power fails at the k-th operation.

What a build does goes to a real folder; beside it is kept what a disk would not
have yet. Files are only appended to, so a file's durable bytes are those before
its last fsync; names (created, renamed, removed) are durable once their folder
was synced. When the power fails, `fall` decides what becomes of the rest. A folder that
gets another name takes along what is not durable in it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tokenreel.filesystem import FileSystem


class Crash(BaseException):
    """The power is gone; no handler of the program runs after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameChange:
    """A change of names in a folder, not durable yet; `undo` is given what they are now."""

    paths: tuple[Path, ...]
    undo: Callable[..., None]

    @property
    def folder(self) -> Path:
        """The folder to be synced: that of the last name."""
        return self.paths[-1].parent


class CrashingFileSystem(FileSystem):
    """Count operations and crash before the k-th; afterwards nothing reaches the disk."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.operations: list[str] = []
        self._crash_at = crash_at
        self._is_dead = False
        self._changes: list[NameChange] = []
        self._durable_bytes: dict[Path, int] = {}

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        """Crash, or keep in mind what the operation leaves undone."""
        if self._is_dead:
            raise Crash
        self.operations.append(operation)
        if len(self.operations) == self._crash_at:
            self._is_dead = True
            raise Crash
        note = {
            "create": self._note_create,
            "write": lambda _: None,
            "sync": self._note_sync,
            "rename": lambda source: self._note_rename(source, target or source),
            "remove": self._note_remove,
            "make_dir": self._note_make_dir,
            "remove_dir": self._note_remove_dir,
            "sync_dir": self._note_sync_dir,
            "lock": self._note_lock,
        }
        note[operation](path)

    def start_again(self, *, crash_at: int | None) -> None:
        """Let another process go on, on the same disk: the power did not fail, only a process."""
        self.operations = []
        self._crash_at = crash_at
        self._is_dead = False

    def distinct_policies(self) -> list[str]:
        """Return the policies that do not all come to the same here."""
        has_bytes = any(
            path.exists() and path.stat().st_size > durable
            for path, durable in self._durable_bytes.items()
        )
        return [
            "kept",
            *(["dropped"] if has_bytes or self._changes else []),
            *(["garbled", "names only"] if has_bytes else []),
            *(["some of it"] if has_bytes and self._changes else []),
            *(["any of it"] if len(self._changes) > 1 else []),
        ]

    def fall(self, policy: str, *, seed: int = 0) -> None:
        """Apply what the power failure did to all that was not synced.

        "any of it" loses the n-th change of names where the seed has its n-th bit set.
        """
        chance = random.Random(seed)
        num_changes = len(self._changes)
        # A journal keeps the order of names: what is lost is the newest part. Not every file
        # system has one.
        lost = {
            "dropped": set(range(num_changes)),
            "some of it": set(range(chance.randint(0, num_changes), num_changes)),
            "any of it": {number for number in range(num_changes) if seed >> number % 16 & 1},
        }.get(policy, set())
        for number in sorted(lost, reverse=True):
            self._changes[number].undo(*self._changes[number].paths)
        for path, durable in self._durable_bytes.items():
            if path.exists() and path.stat().st_size > durable:
                _spoil(path, durable, policy, chance)
        self._changes.clear()
        self._durable_bytes.clear()

    def _note(self, undo: Callable[..., None], *paths: Path) -> None:
        self._changes.append(NameChange(paths=paths, undo=undo))

    def _note_create(self, path: Path) -> None:
        self._note(self._restorer(path), path)
        self._durable_bytes[path] = 0

    def _note_sync(self, path: Path) -> None:
        self._durable_bytes[path] = path.stat().st_size

    def _note_rename(self, source: Path, target: Path) -> None:
        restore_target = self._restorer(target)

        def undo(source: Path, target: Path) -> None:
            if target.exists():
                target.replace(source)
                self._move(target, source)
            restore_target(target)

        self._note(undo, source, target)
        self._move(source, target)

    def _note_remove(self, path: Path) -> None:
        if path.exists():
            self._note(self._restorer(path), path)

    def _note_make_dir(self, path: Path) -> None:
        if not path.exists():
            self._note(lambda path: shutil.rmtree(path, ignore_errors=True), path)

    def _note_remove_dir(self, path: Path) -> None:
        if path.is_dir() and not any(path.iterdir()):
            self._note(lambda path: path.mkdir(exist_ok=True), path)

    def _note_sync_dir(self, folder: Path) -> None:
        self._changes = [change for change in self._changes if change.folder != folder]

    def _note_lock(self, path: Path) -> None:
        if not path.exists():
            self._note(lambda path: path.unlink(missing_ok=True), path)

    def _restorer(self, path: Path) -> Callable[[Path], None]:
        """Return what puts a name back to what it is now: these bytes, or nothing."""
        data = path.read_bytes() if path.is_file() else None
        durable = self._durable_bytes.get(path)

        def restore(path: Path) -> None:
            self._durable_bytes.pop(path, None)
            if data is None:
                path.unlink(missing_ok=True)
                return
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            if durable is not None:
                self._durable_bytes[path] = durable

        return restore

    def _move(self, source: Path, target: Path) -> None:
        """Give a file, or a folder and all in it, its other name here too."""

        def moved(path: Path) -> Path:
            return target / path.relative_to(source) if source in path.parents else path

        durable = self._durable_bytes.pop(source, None)
        self._durable_bytes.pop(target, None)
        if durable is not None:
            self._durable_bytes[target] = durable
        if source.is_dir() or target.is_dir():  # before the rename, or after it was undone
            self._durable_bytes = {moved(path): size for path, size in self._durable_bytes.items()}
            self._changes = [
                replace(change, paths=tuple(map(moved, change.paths))) for change in self._changes
            ]


def _spoil(path: Path, durable: int, policy: str, chance: random.Random) -> None:
    """Do to the bytes behind the durable ones what the policy says."""
    fate = policy
    if policy in ("some of it", "any of it"):
        fate = chance.choice(("kept", "names only", "garbled"))
    size = path.stat().st_size
    if fate == "garbled":
        with path.open("r+b") as file:
            file.seek(durable)
            file.write(chance.randbytes(size - durable))
    elif fate in ("dropped", "names only"):
        with path.open("r+b") as file:
            file.truncate(chance.randint(durable, size - 1) if "of it" in policy else durable)
