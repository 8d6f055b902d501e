"""Provenance on disk: one record of 24 bytes per document, and the strings they point to.

    .origins   row u64 · byte u64 · file u32 · id u32     (all ones: not known)
    .strings   length u32 · UTF-8 bytes, one after another; `file` and `id` are offsets here

A file name is written once per shard, however many documents came from it.
`Origins` are such records on their way from one table to another: they are moved as
arrays (about 0.1 µs a document), and become objects only where somebody looks.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from tokenreel.errors import DamageError, InputError
from tokenreel.text.provenance import Provenance

ORIGIN = np.dtype([("row", "<u8"), ("byte", "<u8"), ("file", "<u4"), ("id", "<u4")])
UNKNOWN_COUNT = 2**64 - 1
UNKNOWN_STRING = 2**32 - 1
NOTHING = Provenance()


class Origins(Sequence[Provenance]):
    """Provenances as records, and the strings that the records point to.

    records: ORIGIN [n]; strings: uint8, as in a `.strings` file.

    >>> records, strings = OriginTable().add([Provenance(file="a.txt"), Provenance(row=3)])
    >>> origins = Origins(records, np.frombuffer(strings, np.uint8))
    >>> origins.take(np.array([1, 0, 0]))[2].file
    'a.txt'
    """

    def __init__(self, records: np.ndarray, strings: np.ndarray) -> None:
        self.records = records
        self.strings = strings

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, number: int) -> Provenance: ...
    @overload
    def __getitem__(self, number: slice) -> Origins: ...
    def __getitem__(self, number: int | slice) -> Provenance | Origins:
        if isinstance(number, slice):
            return Origins(self.records[number], self.strings)
        return read_origin(self.records[number], self.strings, where=Path("provenance"))

    def take(self, order: np.ndarray) -> Origins:
        """Return those with these numbers, in this order, sharing the strings."""
        return Origins(self.records[order], self.strings)

    @staticmethod
    def join(parts: Sequence[Origins]) -> Origins:
        """Return the origins of all parts, end to end, with the strings that they use."""
        table = OriginTable()
        added = [table.add(part) for part in parts]
        strings = np.frombuffer(b"".join(new for _, new in added), np.uint8)
        return Origins(np.concatenate([records for records, _ in added]), strings)


class OriginTable:
    """Turn provenances into records, interning file names."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self.strings_bytes = 0

    def add(self, origins: Sequence[Provenance | None]) -> tuple[np.ndarray, bytes]:
        """Return the records of these documents and the strings that are new with them."""
        if isinstance(origins, Origins):
            return self._add_records(origins)
        records = np.empty(len(origins), ORIGIN)
        new: list[bytes] = []
        for i, origin in enumerate(origins):
            origin = origin or NOTHING
            records[i] = (
                UNKNOWN_COUNT if origin.row is None else _count(origin.row, "row"),
                UNKNOWN_COUNT if origin.byte is None else _count(origin.byte, "byte"),
                UNKNOWN_STRING if origin.file is None else self._file(origin.file, new),
                UNKNOWN_STRING if origin.id is None else self._append(origin.id, new),
            )
        return records, b"".join(new)

    def _add_records(self, origins: Origins) -> tuple[np.ndarray, bytes]:
        """Do the same, to the byte, for records that point into other strings."""
        records, strings = origins.records.copy(), origins.strings
        if self._files and (same := self._same_file(origins)) is not None:
            records["file"] = same
            return records, b""
        # lengths[d]: how many bytes the id of document d takes, its length (4 bytes) included.
        has_id = records["id"] != UNKNOWN_STRING
        starts = records["id"][has_id].astype(np.int64)
        lengths = np.zeros(len(records), np.int64)
        lengths[has_id] = 4 + _string_lengths(strings, starts)
        moved, heads = self._move_files(origins, lengths)
        records["file"] = moved
        # The id of a document lies behind its file, if that is new with it.
        id_offsets = self.strings_bytes + np.cumsum(heads + lengths) - lengths
        records["id"][has_id] = id_offsets[has_id]
        new = np.empty(int((heads + lengths).sum()), np.uint8)
        targets = id_offsets[has_id] - self.strings_bytes
        _copy_runs(strings, starts, new, targets, lengths[has_id])
        for number in np.flatnonzero(heads).tolist():
            start = int(moved[number]) - self.strings_bytes
            old = int(origins.records["file"][number])
            new[start : start + heads[number]] = strings[old : old + heads[number]]
        self.strings_bytes += len(new)
        return records, new.tobytes()

    def _same_file(self, origins: Origins) -> int | None:
        """Return the offset of the file that is known and all there is to say, or None."""
        files = origins.records["file"]
        if not len(files) or not (files == files[0]).all():
            return None
        if not (origins.records["id"] == UNKNOWN_STRING).all():
            return None
        name = _string(int(files[0]), origins.strings, Path("provenance"))
        return None if name is None else self._files.get(name)

    def _move_files(self, origins: Origins, id_bytes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the new offset of each document's file, and the bytes of it that are new there.

        The strings come to lie as if documents were added one by one: for each document its file,
        if that is new, then its id, of `id_bytes`. Hence the bytes are the same either way.
        """
        files = origins.records["file"]
        # heads[d]: how many bytes document d adds for its file; 0 unless it is the first with it.
        heads = np.zeros(len(files), np.int64)
        # The distinct files, the document that each occurs in first, and which is each document's.
        used, firsts, owner = np.unique(files, return_index=True, return_inverse=True)
        offsets = np.empty(len(used), np.uint32)  # of the distinct files, in the new strings
        id_bytes_before = np.concatenate((np.zeros(1, np.int64), np.cumsum(id_bytes)))
        added = 0  # bytes of files that are new so far
        for which in np.argsort(firsts, kind="stable").tolist():  # in the order they occur
            name = _string(int(used[which]), origins.strings, Path("provenance"))
            if name is None:
                offsets[which] = UNKNOWN_STRING
                continue
            if name not in self._files:
                # It lies behind the files and ids of all documents before its first one.
                first = int(firsts[which])
                heads[first] = 4 + len(name.encode("utf-8", "surrogatepass"))
                offset = self.strings_bytes + added + int(id_bytes_before[first])
                self._files[name] = offset
                added += int(heads[first])
            # An offset beyond 4 GB does not fit; then the check below refuses all of them.
            offsets[which] = min(self._files[name], UNKNOWN_STRING - 1)
        if self.strings_bytes + added + int(id_bytes_before[-1]) >= UNKNOWN_STRING:
            raise _too_many_strings()
        return offsets[owner], heads

    def _file(self, name: str, new: list[bytes]) -> int:
        if name not in self._files:
            self._files[name] = self._append(name, new)
        return self._files[name]

    def _append(self, text: str, new: list[bytes]) -> int:
        if not isinstance(text, str):
            raise InputError("file and id of a provenance must be strings", actual=repr(text))
        data = text.encode("utf-8", "surrogatepass")
        offset = self.strings_bytes
        self.strings_bytes += 4 + len(data)
        if self.strings_bytes >= UNKNOWN_STRING:
            raise _too_many_strings()
        new.append(struct.pack("<I", len(data)) + data)
        return offset


def _too_many_strings() -> InputError:
    return InputError(
        "provenance strings of one shard exceed 4 GB",
        remedy="use shorter ids or smaller shards",
    )


def _string_lengths(strings: np.ndarray, starts: np.ndarray) -> np.ndarray:
    heads = strings[starts[:, None] + np.arange(4)]
    return np.ascontiguousarray(heads).view("<u4")[:, 0].astype(np.int64)


def _copy_runs(
    source: np.ndarray,
    starts: np.ndarray,
    target: np.ndarray,
    offsets: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """Copy runs of bytes from `starts` of the source to `offsets` of the target."""
    # Bytes of all runs are counted through by `within`; run r begins at before[r] of them.
    before = np.cumsum(lengths) - lengths
    within = np.arange(int(lengths.sum()))
    index = np.repeat(offsets - before, lengths) + within
    target[index] = source[np.repeat(starts - before, lengths) + within]


def _count(value: int, name: str) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = -1
    if not 0 <= count < UNKNOWN_COUNT:
        raise InputError(
            f"bad {name} of a provenance", expected="0 to 2**64 - 2", actual=repr(value)
        )
    return count


def read_origin(record: np.ndarray, strings: np.ndarray, *, where: Path) -> Provenance:
    """Return the Provenance of one record; an offset outside the strings raises DamageError."""
    row, byte = int(record["row"]), int(record["byte"])
    return Provenance(
        file=_string(int(record["file"]), strings, where),
        row=None if row == UNKNOWN_COUNT else row,
        byte=None if byte == UNKNOWN_COUNT else byte,
        id=_string(int(record["id"]), strings, where),
    )


def _string(offset: int, strings: np.ndarray, where: Path) -> str | None:
    if offset == UNKNOWN_STRING:
        return None
    head = strings[offset : offset + 4].tobytes()
    length = struct.unpack("<I", head)[0] if len(head) == 4 else 2**32
    if offset + 4 + length > len(strings):
        raise DamageError(
            "a provenance string points past the end",
            where=where,
            expected=f"<= {len(strings):,} bytes",
            actual=offset + 4 + length,
            remedy='run "tokenreel verify"',
        )
    data = strings[offset + 4 : offset + 4 + length].tobytes()
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise DamageError(
            f"a provenance string is not UTF-8 at byte {offset + 4 + error.start:,}",
            where=where,
            remedy='run "tokenreel verify"',
        ) from error
