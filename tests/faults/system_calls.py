"""What the kernel is asked to do with the files of a folder, in order.

`FileSystem.observe` is called before an operation, so whoever listens there cannot tell whether
the operation then happens. This listens to the functions of `os` and writes down a call after it
came back. `Disk` replays the calls: what a power failure could still take.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A system call: create, write, fsync, mkdir, link, remove, or rename to `target`."""

    name: str
    path: Path
    target: Path | None = None


def path_of(descriptor: int) -> Path:
    """Return what a descriptor is open on, as the kernel knows it."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def told_open(descriptor: int, path: Any, flags: int, *rest: Any) -> Call | None:
    # Folders are opened to be synced, and locks to be locked: neither makes a file that is written.
    return Call(name="create", path=path_of(descriptor)) if flags & os.O_TRUNC else None


# What the functions of `os` did, told by what they returned and what they were given.
TOLD: dict[str, Callable[..., Call | None]] = {
    "open": told_open,
    "write": lambda _, descriptor, data: Call(name="write", path=path_of(descriptor)),
    "fsync": lambda _, descriptor: Call(name="fsync", path=path_of(descriptor)),
    "replace": lambda _, old, new: Call(name="rename", path=Path(old), target=Path(new)),
    "link": lambda _, old, new: Call(name="link", path=Path(new)),
    "mkdir": lambda _, path, *rest: Call(name="mkdir", path=Path(path)),
    "unlink": lambda _, path: Call(name="remove", path=Path(path)),
}


def record_calls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Return a list that grows with every call that changes or syncs something in a folder."""
    calls: list[Call] = []

    def listening(real: Callable[..., Any], tell: Callable[..., Call | None]) -> Any:
        def function(*args: Any, **options: Any) -> Any:
            result = real(*args, **options)
            call = tell(result, *args)
            if call is not None and call.path.is_relative_to(folder):
                calls.append(call)
            return result

        return function

    for name, tell in TOLD.items():
        monkeypatch.setattr(os, name, listening(getattr(os, name), tell))
    return calls


@dataclass(slots=True)
class Disk:
    """What is not durable: files whose bytes were not synced, names whose folder was not."""

    unsynced_bytes: set[Path] = field(default_factory=set)
    unsynced_names: set[Path] = field(default_factory=set)

    def apply(self, call: Call) -> None:
        """Let one more call happen."""
        if call.name == "rename":
            assert call.target is not None
            for unsynced in (self.unsynced_bytes, self.unsynced_names):
                moved = {path for path in unsynced if path.is_relative_to(call.path)}
                unsynced -= moved
                unsynced |= {call.target / path.relative_to(call.path) for path in moved}
            self.unsynced_names |= {call.path, call.target}
        elif call.name == "fsync":
            self.unsynced_bytes.discard(call.path)
            names = self.unsynced_names
            self.unsynced_names = {name for name in names if name.parent != call.path}
        elif call.name == "write":
            self.unsynced_bytes.add(call.path)
        else:
            self.unsynced_names.add(call.path)
            if call.name == "create":
                self.unsynced_bytes.add(call.path)

    def missing(self, names: Iterable[Path]) -> set[Path]:
        """Return those of the names that a power failure could take, or the bytes of which."""
        return set(names) & (self.unsynced_bytes | self.unsynced_names)
