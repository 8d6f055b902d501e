"""Plans on disk: a CSR table of rows, mapped when it is opened.

    <key>/row_offsets    int64 [rows + 1]   row r is pieces row_offsets[r] to row_offsets[r + 1]
    <key>/documents      int64 [pieces]     the document of each piece
    <key>/positions      int64 [pieces]     where its first token lies in the split
    <key>/lengths        int32 [pieces]
    <key>/flags          uint8 [pieces]     1: a segment begins here
    <key>/by_document    int64 [pieces]     the pieces in order of their documents
    <key>/plan.json      canonical JSON: what the plan is of, ledger, sizes, SHA-256

29 bytes a piece and 8 a row, little-endian. Opening costs the same for any number of rows:
the header, which vouches for itself, and the sizes are checked; `check_plan` reads it all.
A plan is written under a temporary name and appears whole, by the rename of its folder.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.errors import DamageError, FormatError, StoreError, WriteError
from tokenreel.rows.table import COLUMNS, Table, renumber
from tokenreel.store.arrays import ArrayFile
from tokenreel.store.canonical import canonical_bytes, digest, read_canonical
from tokenreel.store.filesystem import TEMPORARY_SUFFIX, FileSystem, OutputFile

FORMAT = "tokenreel-plan"
VERSION = 1
HEADER = "plan.json"
LEFTOVER_SECONDS = 24 * 3600
HASHED_BYTES = 1 << 22
ATTEMPTS = 5  # to take a name that other planners take and free as well

logger = logging.getLogger(__name__)

Ledger = dict[str, int]


def write_plan(
    folder: Path,
    blocks: Iterable[Table],
    *,
    identity: Mapping[str, object],
    ledger: Ledger,
    filesystem: FileSystem,
) -> None:
    """Write a plan block by block; `folder` appears when all of it is durable.

    `ledger` is read after the last block. Where another planner was faster, its plan stays.
    """
    filesystem.make_dir(folder.parent)
    _sweep(folder.parent, filesystem)
    temporary = _temporary(folder)
    try:
        filesystem.make_dir(temporary)
        files = _write_columns(temporary, blocks, filesystem)
        content = {**identity, "files": files, "ledger": ledger}
        header = canonical_bytes({**content, "sha256": digest(content)})
        filesystem.write_whole(temporary / HEADER, header)
        _give_name(temporary, folder, identity, filesystem)
    except BaseException:
        _discard(temporary, filesystem)
        raise
    filesystem.sync_dir(folder.parent)


def _write_columns(
    folder: Path, blocks: Iterable[Table], filesystem: FileSystem
) -> dict[str, object]:
    hashers = {name: hashlib.sha256() for name in COLUMNS}
    sizes = dict.fromkeys(COLUMNS, 0)
    with ExitStack() as stack:
        outputs: dict[str, OutputFile] = {
            name: stack.enter_context(filesystem.create(folder / name)) for name in COLUMNS
        }
        for part in renumber(blocks):
            for name, output in outputs.items():
                column = np.ascontiguousarray(getattr(part, name))
                if column.nbytes:
                    output.write(column.data)
                    hashers[name].update(column.data)
                    sizes[name] += column.nbytes
        for output in outputs.values():
            output.sync()
    return {name: {"bytes": sizes[name], "sha256": hashers[name].hexdigest()} for name in COLUMNS}


def _give_name(
    temporary: Path, folder: Path, identity: Mapping[str, object], filesystem: FileSystem
) -> None:
    for attempt in range(ATTEMPTS):
        try:
            filesystem.rename(temporary, folder)
            return
        except WriteError as error:
            if attempt == ATTEMPTS - 1 or not _is_taken(error):
                raise
        try:
            open_plan(folder, identity)
        except StoreError:
            _put_aside(folder, filesystem)
        else:
            _discard(temporary, filesystem)
            return


def _is_taken(error: WriteError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOTEMPTY, errno.EEXIST)


def _put_aside(folder: Path, filesystem: FileSystem) -> None:
    """Remove a damaged plan; another planner may do the same at the same moment."""
    aside = _temporary(folder)
    try:
        filesystem.rename(folder, aside)
    except WriteError:
        if folder.exists():
            raise
    _discard(aside, filesystem)


def _temporary(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")


def _discard(folder: Path, filesystem: FileSystem) -> None:
    try:
        files = sorted(folder.iterdir())
    except FileNotFoundError:  # never made, or another planner removed it
        return
    for file in files:
        filesystem.discard(file)
    try:
        filesystem.remove_dir(folder)
    except WriteError as error:
        logger.warning("a useless folder stays: %s", error)


def _sweep(folder: Path, filesystem: FileSystem) -> None:
    """Remove what planners that were killed have left; one that is younger may still be at work."""
    for leftover in sorted(folder.glob(f"*{TEMPORARY_SUFFIX}")):
        try:
            age = time.time() - leftover.stat().st_mtime
        except FileNotFoundError:
            continue
        if age > LEFTOVER_SECONDS:
            _discard(leftover, filesystem)


def open_plan(folder: Path, identity: Mapping[str, object]) -> tuple[Table, Ledger]:
    """Map a plan after checking its header and sizes, or raise StoreError."""
    header = _read_header(folder)
    for name, expected in identity.items():
        if header.get(name) != expected:
            raise FormatError(
                f"this is a plan of something else: {name}",
                where=folder / HEADER,
                expected=expected,
                actual=header.get(name),
            )
    files = {file.path.name: file for file in _files(folder, header)}
    _check_counts(folder, {name: file.count for name, file in files.items()})
    return Table(**{name: file.map() for name, file in files.items()}), dict(header["ledger"])


def _check_counts(folder: Path, counts: Mapping[str, int]) -> None:
    """Refuse columns that make no table: who looks rows up reads all of them alike."""
    pieces = {name: count for name, count in counts.items() if name != "row_offsets"}
    if counts["row_offsets"] < 2 or len(set(pieces.values())) != 1:
        raise DamageError(
            "the columns make no table",
            where=folder / HEADER,
            expected="one row or more, and as many pieces in every column",
            actual=", ".join(f"{name} {count:,}" for name, count in counts.items()),
            remedy="plan again",
        )


def check_plan(folder: Path) -> list[StoreError]:
    """Return what is wrong with a plan on disk; every byte of it is read."""
    try:
        header = _read_header(folder)
        files = list(_files(folder, header))
    except StoreError as error:
        return [error]
    problems: list[StoreError] = []
    for file in files:
        try:
            _check_bytes(file, header["files"][file.path.name]["sha256"])
        except StoreError as error:
            problems.append(error)
    return problems


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    header: dict[str, Any] = read_canonical(path)
    content = {name: value for name, value in header.items() if name != "sha256"}
    if header.get("sha256") != digest(content):
        raise DamageError("the header fails its checksum", where=path, remedy="plan again")
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise FormatError(
            "not a plan of this version",
            where=path,
            expected=f"{FORMAT} {VERSION}",
            actual=f"{header.get('format')} {header.get('version')}",
            remedy="plan again",
        )
    return header


def _files(folder: Path, header: dict[str, Any]) -> Iterator[ArrayFile]:
    for name, kind in COLUMNS.items():
        count = int(header["files"][name]["bytes"]) // kind.itemsize
        file = ArrayFile(path=folder / name, dtype=kind, count=count)
        file.check_size()
        yield file


def _check_bytes(file: ArrayFile, expected: str) -> None:
    hasher = hashlib.sha256()
    step = HASHED_BYTES // file.dtype.itemsize
    for start in range(0, file.count, step):
        hasher.update(file.read(start, min(start + step, file.count)).data)
    if hasher.hexdigest() != expected:
        raise DamageError(
            "the file fails its checksum",
            where=file.path,
            expected=expected,
            actual=hasher.hexdigest(),
            remedy="remove the folder: the plan is made again when it is needed",
        )
