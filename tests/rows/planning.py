"""Plans beside a store, and disks that fail while they are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.canonical import canonical_bytes, digest
from tokenreel.filesystem import FileSystem
from tokenreel.rows.episodes import Episodes, plan_episodes
from tokenreel.rows.packed import Packed, plan_packed
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.plan_cache import plan_cache
from tokenreel.rows.plan_file import HEADER
from tokenreel.rows.windows import Windows, plan_windows
from tokenreel.store.store import Store

LENGTHS = [9, 30, 4, 17, 2, 12, 6, 0, 1, 25]
CHAT_LENGTHS = [1] * 12 + [7, 20, 1, 3, 13, 2, 0, 11] * 3
KINDS = ("windows", "document_windows", "episodes")
# What becomes of unsynced writes; three for each operation, the other three for the next.
FALLS = ("kept", "garbled", "dropped", "names only", "some of it", "any of it")


def said_by_three(program: str, store: Store) -> str:
    """Run a program on a store in three processes at once, and return what all of them print."""
    run = [sys.executable, "-c", program, str(store.path)]
    processes = [subprocess.Popen(run, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = {process.communicate(timeout=60)[0] for process in processes}
    assert len(outputs) == 1
    return outputs.pop()


def plan_of(store: Store, *, filesystem: FileSystem | None = None, **options: Any) -> Packed:
    cache = plan_cache(store, filesystem=filesystem or FileSystem())
    settings: dict[str, Any] = {"seq_len": 11, "block_docs": 3, **options}
    return plan_packed(split=store["train"], cache=cache, **settings)


def rows_of(
    store: Store, kind: str, *, filesystem: FileSystem | None = None, **options: Any
) -> Windows | Episodes:
    """Return the rows of a kind as a feed has them, their plan kept in the cache."""
    cache = plan_cache(store, filesystem=filesystem or FileSystem())
    settings: dict[str, Any] = {"split": store["train"], "seq_len": 5, "cache": cache, **options}
    if kind == "episodes":
        return plan_episodes(**settings)
    return plan_windows(by_document=kind == "document_windows", **settings)


def all_of(plan: Windows | Episodes) -> tuple[Any, ...]:
    """What a plan says: every row, the way back from every document, the account."""
    rows: Pieces = plan.pieces(np.arange(plan.num_rows))
    given = {name: getattr(rows, name) for name in Pieces.__slots__}
    columns = {name: None if column is None else column.tolist() for name, column in given.items()}
    documents = range(plan.split.num_documents or 0)
    return plan.num_rows, columns, [plan.find(number) for number in documents], dict(plan.ledger)


def plan_folder(store: Store) -> Path:
    (folder,) = (store.path / ".plans").iterdir()
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def vouch(folder: Path) -> None:
    """Make the header of a plan vouch for the columns as they are now."""
    header = json.loads((folder / HEADER).read_text())
    for name in header["files"]:
        data = (folder / name).read_bytes()
        header["files"][name] = {"bytes": len(data), "sha256": sha256(data).hexdigest()}
    del header["sha256"]
    (folder / HEADER).write_bytes(canonical_bytes({**header, "sha256": digest(header)}))


def finished_plans(path: Path) -> dict[str, bytes]:
    folder = path / ".plans"
    return {
        name: data
        for name, data in (tree(folder) if folder.exists() else {}).items()
        if ".tmp/" not in name
    }


class Observed(FileSystem):
    """Keep the operations in mind; fail those in one folder as a read-only disk would."""

    def __init__(self, *, read_only: Path | None = None, code: int = 30) -> None:
        self.operations: list[str] = []
        self._read_only = read_only
        self._code = code

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        self.operations.append(operation)
        if self._read_only is not None and self._read_only in path.parents:
            raise OSError(self._code, os.strerror(self._code))


class FullAfter(FileSystem):
    """A disk that has room for so many operations."""

    def __init__(self, num_operations: int) -> None:
        self._left = num_operations

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        self._left -= 1
        if self._left < 0 and operation in ("write", "create", "sync"):
            raise OSError(28, "No space left on device")
