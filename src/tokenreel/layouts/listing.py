"""What lies in a folder, in the order people count: `_10` after `_2`.

Names come from one scan of the folder; a size costs one stat, when it is asked
for, so recognising a layout by its names stats nothing. Nothing is skipped
silently: a link that leads nowhere is listed with the size `BROKEN`, and whoever
wants to use it raises; the size of a pipe, a socket or a device is a DamageError.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenreel.config.paths import natural_key
from tokenreel.errors import DamageError

BROKEN = -1
SPLIT_NAMES = ("train", "val", "valid", "validation", "test", "dev", "eval", "holdout")


class FileSizes(Mapping[str, int]):
    """File names to sizes; a size is looked up when it is asked for."""

    def __init__(self, entries: Mapping[str, os.DirEntry[str]]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> int:
        entry = self._entries[name]
        try:
            found = entry.stat()
        except OSError:
            return BROKEN
        if not stat.S_ISREG(found.st_mode):  # of a pipe nobody knows the size, or the end
            raise DamageError("not a regular file", where=entry.path, remedy="restore the file")
        return found.st_size

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The files (name to size) and subfolders of a folder, both in natural order."""

    path: Path
    files: FileSizes
    folders: tuple[str, ...]

    def matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the names of files that match as a whole."""
        return [name for name in self.files if pattern.fullmatch(name)]

    @property
    def split_folders(self) -> tuple[str, ...]:
        """The subfolders that have the name of a split."""
        return tuple(name for name in self.folders if name in SPLIT_NAMES)


def list_folder(path: Path) -> Folder:
    """List a folder without its hidden entries, or raise DamageError if it cannot be read."""
    files: dict[str, os.DirEntry[str]] = {}
    folders: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.append(entry.name)
                else:
                    files[entry.name] = entry
    except OSError as error:
        raise DamageError(f"cannot be read: {error.strerror}", where=path) from error
    names = sorted(files, key=natural_key)
    return Folder(
        path=path,
        files=FileSizes({name: files[name] for name in names}),
        folders=tuple(sorted(folders, key=natural_key)),
    )


def split_order(names: Mapping[str, object]) -> list[str]:
    """Return split names, those that everyone uses first.

    >>> split_order({"books": 1, "val": 2, "train": 3})
    ['train', 'val', 'books']
    """
    known = [name for name in SPLIT_NAMES if name in names]
    return known + sorted((name for name in names if name not in SPLIT_NAMES), key=natural_key)
