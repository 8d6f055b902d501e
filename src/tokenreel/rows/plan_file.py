"""Plans on disk: columns of numbers, read when they are opened, or mapped if they are large.

    <key>/plan.json      canonical JSON: what the plan is of, ledger, sizes, SHA-256

    packed rows, a CSR table (table.py), 29 bytes a piece and 8 a row:
    <key>/row_offsets    int64 [rows + 1]   row r is pieces row_offsets[r] to row_offsets[r + 1]
    <key>/documents      int64 [pieces]     the document of each piece
    <key>/positions      int64 [pieces]     where its first token lies in the split
    <key>/lengths        int32 [pieces]
    <key>/flags          uint8 [pieces]     1: a segment begins here
    <key>/by_document    int64 [pieces]     the pieces in order of their documents

    pairs, the same and one column more (pairs.py), 30 bytes a piece:
    <key>/labels         uint8 [pieces]     of the answer that the piece is (text/turns.py)

    windows, where some are left out (windows.py), 8 bytes a row; none where all are kept:
    <key>/kept           int64 [rows]       the windows that are rows, in order

    episodes (episodes.py), 20 bytes a row, 32 where some row has a prefix:
    <key>/document       int64 [rows]
    <key>/start          int64 [rows]       where its first token lies in the split
    <key>/length         uint32 [rows]
    <key>/prefix_start   int64 [rows]       tokens that stand before these, and how many
    <key>/prefix_length  uint32 [rows]

All little-endian. The header vouches for itself and for the columns, which are held against
it once in a process (verified.py): at open, or in the background above 64 MiB, so that opening
takes no longer for more rows than these. A plan is written under a
temporary name and appears whole, by the rename of its folder.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from tokenreel.canonical import canonical_bytes, digest, read_canonical
from tokenreel.errors import DamageError, FormatError, StoreError, WriteError
from tokenreel.filesystem import FileSystem, OutputFile, unique_name
from tokenreel.rows.row_ledger import Ledger
from tokenreel.rows.verified import check_bytes, load_columns
from tokenreel.store.file_arrays import ArrayFile

FORMAT = "tokenreel-plan"
VERSION = 1
HEADER = "plan.json"
ATTEMPTS = 5  # to take a name that other planners take and free as well

T = TypeVar("T")
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(Generic[T]):
    """The columns of one kind of plan, and the way from the plan to them and back.

    dtypes: by name; a column that no part has is not stored. parts: blocks of a plan as
    arrays that need only be strung together. whole: the plan that all columns are; it
    raises DamageError, naming the path it is given, where they are none.
    """

    dtypes: Mapping[str, np.dtype]
    parts: Callable[[Iterable[T]], Iterator[Arrays]]
    whole: Callable[[Arrays, Path], T]

    def typed_parts(self, blocks: Iterable[T]) -> Iterator[dict[str, np.ndarray]]:
        """Yield the parts in the dtypes they are stored in."""
        for part in self.parts(blocks):
            yield {
                name: values.astype(self.dtypes[name], copy=False) for name, values in part.items()
            }

    def join(self, blocks: Iterable[T]) -> T:
        """Return the plan that all blocks together are, in memory."""
        parts = list(self.typed_parts(blocks))
        names = [name for name in self.dtypes if any(name in part for part in parts)]
        columns = {
            name: np.concatenate([part[name] for part in parts if name in part]) for name in names
        }
        return self.whole(columns, Path("memory"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[T]):
    """A plan and its ledger; `folder` is where it is stored, None in memory."""

    content: T
    ledger: Ledger
    folder: Path | None


def write_plan(
    folder: Path,
    blocks: Iterable[T],
    *,
    columns: Columns[T],
    identity: Mapping[str, object],
    ledger: Ledger,
    filesystem: FileSystem,
) -> None:
    """Write a plan block by block; `folder` appears when all of it is durable.

    `ledger` is read after the last block. Where another planner was faster, its plan stays.
    """
    with filesystem.temporary_folder(folder) as temporary:
        files = _write_columns(temporary, columns.typed_parts(blocks), filesystem)
        content = {**identity, "files": files, "ledger": ledger}
        header = canonical_bytes({**content, "sha256": digest(content)})
        filesystem.write_whole(temporary / HEADER, header)
        _give_name(temporary, folder, partial(open_plan, folder, identity, columns), filesystem)
    filesystem.sync_dir(folder.parent)


def _write_columns(
    folder: Path, parts: Iterable[Arrays], filesystem: FileSystem
) -> dict[str, object]:
    """Append the parts of each column to its file; a column that no part has gets none."""
    outputs: dict[str, OutputFile] = {}
    hashers: dict[str, Any] = {}
    with ExitStack() as stack:
        for part in parts:
            for name in [name for name in part if name not in outputs]:
                outputs[name] = stack.enter_context(filesystem.create(folder / name))
                hashers[name] = hashlib.sha256()
            for name, values in part.items():
                column = np.ascontiguousarray(values)
                outputs[name].write(column)
                hashers[name].update(column)
        for output in outputs.values():
            output.sync()
    return {
        name: {"bytes": output.num_bytes, "sha256": hashers[name].hexdigest()}
        for name, output in outputs.items()
    }


def _give_name(
    temporary: Path, folder: Path, check: Callable[[], object], filesystem: FileSystem
) -> None:
    """Rename a plan; where one is there that passes the check, that one stays."""
    for attempt in range(ATTEMPTS):
        try:
            filesystem.rename(temporary, folder)
            return
        except WriteError as error:
            if attempt == ATTEMPTS - 1 or not _is_taken(error):
                raise
        try:
            check()
            return
        except StoreError:
            _put_aside(folder, filesystem)


def _is_taken(error: WriteError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOTEMPTY, errno.EEXIST)


def _put_aside(folder: Path, filesystem: FileSystem) -> None:
    """Remove a damaged plan; another planner may do the same at the same moment."""
    aside = unique_name(folder)
    try:
        filesystem.rename(folder, aside)
    except WriteError:
        if folder.exists():
            raise
    filesystem.discard_tree(aside)


def open_plan(
    folder: Path,
    identity: Mapping[str, object],
    columns: Columns[T],
    *,
    mode: str = "mmap",
) -> Plan[T]:
    """Open a plan after checking its header, sizes and bytes, or raise StoreError.

    `mode` pread maps nothing, however large the plan is.
    """
    header = read_header(folder)
    for name, expected in identity.items():
        if header.get(name) != expected:
            raise FormatError(
                f"this is a plan of something else: {name}",
                where=folder / HEADER,
                expected=expected,
                actual=header.get(name),
            )
    files = _files(folder, header, columns.dtypes)
    digests = {name: str(facts["sha256"]) for name, facts in header["files"].items()}
    loaded = load_columns(files, digests, mode=mode)
    content = columns.whole(loaded, folder / HEADER)
    return Plan(content=content, ledger=dict(header["ledger"]), folder=folder)


def check_plan(folder: Path) -> list[StoreError]:
    """Return what is wrong with a plan on disk; every byte of it is read."""
    try:
        header = read_header(folder)
        files = _files(folder, header, dict.fromkeys(header["files"], np.dtype("u1")))
    except StoreError as error:
        return [error]
    problems: list[StoreError] = []
    for file in files:
        try:
            check_bytes(file, header["files"][file.path.name]["sha256"])
        except StoreError as error:
            problems.append(error)
    return problems


def read_header(folder: Path) -> dict[str, Any]:
    """Return the header of a plan, which vouches for itself, or raise StoreError."""
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
    if not _is_sound(header.get("files"), header.get("ledger")):
        raise FormatError("the header lacks files or ledger", where=path, remedy="plan again")
    return header


def _is_sound(files: object, ledger: object) -> bool:
    """Tell whether files have sizes and digests by name, and the ledger has whole numbers."""
    if not isinstance(files, dict) or not isinstance(ledger, dict):
        return False
    sizes = [facts.get("bytes") if isinstance(facts, dict) else None for facts in files.values()]
    has_digests = all(isinstance(facts, dict) and "sha256" in facts for facts in files.values())
    return has_digests and all(type(number) is int for number in [*sizes, *ledger.values()])


def _files(folder: Path, header: dict[str, Any], dtypes: Mapping[str, np.dtype]) -> list[ArrayFile]:
    """Return the files of the columns, each of the size that the header says."""
    files = []
    for name, facts in header["files"].items():
        if name not in dtypes or not name.isidentifier():
            raise FormatError(
                f"there is no column {name!r} in such a plan",
                where=folder / HEADER,
                expected=", ".join(dtypes),
                remedy="plan again",
            )
        count = int(facts["bytes"]) // dtypes[name].itemsize
        files.append(ArrayFile(path=folder / name, dtype=dtypes[name], count=count))
        files[-1].check_size()
    return files


def check_equal_lengths(columns: Arrays, names: Iterable[str], *, where: Path) -> None:
    """Raise DamageError unless these columns are there, not empty and of one length."""
    counts = {name: len(columns[name]) if name in columns else 0 for name in names}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise no_plan(counts, where=where, expected="one row or more, in every column as many")


def no_plan(counts: Mapping[str, int], *, where: Path, expected: str) -> DamageError:
    """Return the error of columns that are no plan."""
    return DamageError(
        "the columns make no table",
        where=where,
        expected=expected,
        actual=", ".join(f"{name} {count:,}" for name, count in counts.items()),
        remedy="plan again",
    )


def impossible_entry(folder: Path | None, name: str) -> DamageError:
    """Return the error of a plan that has a row outside its split, by the column that says so."""
    if folder is None:
        return DamageError(f"the plan has an impossible entry in its column {name}")
    return DamageError(
        "the plan has an impossible entry",
        where=folder / name,
        remedy=f"remove the folder {folder.parent.name}/{folder.name}: "
        "the plan is made again when it is needed",
    )
