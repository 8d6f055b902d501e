"""Provenance on disk: one record of 24 bytes per document, and the strings they point to.

    .origins   row u64 · byte u64 · file u32 · id u32     (all ones: not known)
    .strings   length u32 · UTF-8 bytes, one after another; `file` and `id` are offsets here

A file name is written once per shard, however many documents came from it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tokenreel.errors import DamageError, InputError
from tokenreel.text.provenance import Provenance

ORIGIN = np.dtype([("row", "<u8"), ("byte", "<u8"), ("file", "<u4"), ("id", "<u4")])
UNKNOWN_COUNT = 2**64 - 1
UNKNOWN_STRING = 2**32 - 1
NOTHING = Provenance()


class OriginTable:
    """Turn Provenance objects into records, interning file names."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self.strings_bytes = 0

    def add(self, origins: Sequence[Provenance | None]) -> tuple[np.ndarray, bytes]:
        """Return the records of these documents and the strings that are new with them."""
        records = np.empty(len(origins), ORIGIN)
        new: list[bytes] = []
        for i, origin in enumerate(origins):
            origin = origin or NOTHING
            records[i] = (
                UNKNOWN_COUNT if origin.row is None else origin.row,
                UNKNOWN_COUNT if origin.byte is None else origin.byte,
                UNKNOWN_STRING if origin.file is None else self._file(origin.file, new),
                UNKNOWN_STRING if origin.id is None else self._append(origin.id, new),
            )
        return records, b"".join(new)

    def _file(self, name: str, new: list[bytes]) -> int:
        if name not in self._files:
            self._files[name] = self._append(name, new)
        return self._files[name]

    def _append(self, text: str, new: list[bytes]) -> int:
        data = text.encode("utf-8", "surrogatepass")
        offset = self.strings_bytes
        self.strings_bytes += 4 + len(data)
        if self.strings_bytes >= UNKNOWN_STRING:
            raise InputError(
                "provenance strings of one shard exceed 4 GB",
                remedy="use shorter ids or smaller shards",
            )
        new.append(struct.pack("<I", len(data)) + data)
        return offset


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
    return strings[offset + 4 : offset + 4 + length].tobytes().decode("utf-8", "surrogatepass")
