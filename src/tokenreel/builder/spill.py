"""An encoded chunk on disk, until the store is whole.

    000012.chunk    arrays of piece 0 · arrays of piece 1 · … · summary (JSON) · its length u64
    731.000013.at   what process 731 is at, should it die

A chunk is one file that appears by one rename: it is there whole or not at all,
however often it is encoded, by whichever worker. It is not fsynced: if the machine
dies, the XXH3 of each array tells, and the chunk is encoded again. Pieces
keep memory bounded where a chunk is large, as a compressed file is.

The chunks of a build take as much disk as its store, and go when it is whole.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tokenreel.canonical import MAX_JSON_BYTES, canonical_bytes, parse_canonical
from tokenreel.errors import FormatError
from tokenreel.filesystem import LOCAL, TEMPORARY_SUFFIX, unique_name
from tokenreel.store.origins import ORIGIN
from tokenreel.text.turns import TURN

ALIGNMENT = 64
LENGTH = struct.Struct("<Q")
HASH = np.dtype("V16")
# The ids have the dtype of the store that is built.
DTYPES = {
    "offsets": np.dtype("<i8"),
    "turns": TURN,
    "turn_offsets": np.dtype("<i8"),
    "origins": ORIGIN,
    "strings": np.dtype("u1"),
    "records": np.dtype("<i8"),
    "objects": np.dtype("u1"),
    "hashes": HASH,
}
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of an encoded chunk without reading its arrays.

    `pieces` say of each array (count, first byte in the file, XXH3). A chunk of a
    stream has the number of its source in `stream`, the cursor behind it, and where
    the stream cannot be read twice the digest of its records in `content`. `files` say of
    each file how many documents, bytes of text and tokens came of it.
    """

    number: int
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    source_bytes: int = 0
    engine: str = ""
    stream: int | None = None
    cursor: dict[str, Any] | None = None
    content: str | None = None
    skipped: dict[str, int] = field(default_factory=dict)
    places: list[dict[str, Any]] = field(default_factory=list)
    dirt: dict[str, int] = field(default_factory=dict)
    dirt_places: list[dict[str, Any]] = field(default_factory=list)
    files: list[list[Any]] = field(default_factory=list)
    pieces: list[dict[str, list[int]]] = field(default_factory=list)


FIELDS = tuple(item.name for item in fields(Summary))


def remove_half_done(folder: Path) -> None:
    """Remove chunks that were being written by workers that are gone, and what they were at."""
    for path in (*folder.glob(f"*{TEMPORARY_SUFFIX}"), *folder.glob("*.at")):
        LOCAL.discard(path)


class Spill:
    """The folder that holds the encoded chunks of one build."""

    def __init__(self, folder: Path, token_dtype: np.dtype) -> None:
        self.folder = folder
        self._dtypes = {**DTYPES, "ids": token_dtype}

    def begin(self) -> None:
        """Make the folder, and remove what a build that was killed left half-done."""
        LOCAL.make_dir(self.folder)
        remove_half_done(self.folder)

    def remove(self) -> None:
        """Remove the folder, all at once: half a folder is never taken for a build's chunks."""
        gone = self.folder.with_name(f"{self.folder.name}.gone")
        LOCAL.rename(self.folder, gone)
        LOCAL.discard_tree(gone)

    def create(self, number: int) -> ChunkWriter:
        """Return a writer of a chunk; nothing is there before its `finish`."""
        return ChunkWriter(self._place(number))

    def verified(self, number: int) -> Summary | None:
        """Return the summary of a chunk, or None if it is not there or not whole."""
        if not self._place(number).exists():
            return None
        try:
            return self._verify(number)
        except (FormatError, TypeError, ValueError, KeyError, OSError):
            LOCAL.discard(self._place(number))
            return None

    def pieces(self, summary: Summary) -> list[Arrays]:
        """Return the arrays of each piece of a chunk, mapped."""
        if not summary.pieces:
            return []
        with self._place(summary.number).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return [
            {
                name: np.frombuffer(mapped, self._dtypes[name], count, start)
                for name, (count, start, _) in piece.items()
            }
            for piece in summary.pieces
        ]

    def _verify(self, number: int) -> Summary:
        path = self._place(number)
        summary = Summary(**read_trailer(path))
        for piece, arrays in zip(summary.pieces, self.pieces(summary), strict=True):
            for name, (_, _, checksum) in piece.items():
                if _checksum(arrays[name]) != checksum:
                    raise FormatError("an encoded chunk is damaged", where=path)
        if summary.number != number:
            raise FormatError("an encoded chunk has another's name", where=path)
        return summary

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:06d}.chunk"


class ChunkWriter:
    """Write the pieces of a chunk; `finish` gives the file its name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = LOCAL.create(unique_name(path))
        self._pieces: list[dict[str, list[int]]] = []

    def add(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Append a piece."""
        piece = {}
        for name, array in arrays.items():
            data = np.ascontiguousarray(array)
            self._file.write(bytes(-self._file.num_bytes % ALIGNMENT))
            piece[name] = [len(data), self._file.num_bytes, _checksum(data)]
            self._file.write(_bytes(data))
        self._pieces.append(piece)

    def finish(self, summary: Summary) -> Summary:
        """Write the summary and let the chunk appear; one that is there already is replaced."""
        whole = replace(summary, pieces=self._pieces)
        # Not asdict, which copies every list of every piece.
        trailer = canonical_bytes({name: getattr(whole, name) for name in FIELDS})
        self._file.write(trailer + LENGTH.pack(len(trailer)))
        self._file.close()
        LOCAL.rename(self._file.path, self._path)
        return whole

    def abandon(self) -> None:
        """Remove what was written; after `finish` there is nothing to remove."""
        self._file.close()
        LOCAL.discard(self._file.path)


def read_trailer(path: Path) -> dict[str, Any]:
    """Return the summary at the end of a chunk file, or raise FormatError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LENGTH.size))
        tail = file.read()
        length = LENGTH.unpack(tail)[0] if len(tail) == LENGTH.size else 0
        if not 0 < length <= min(size - LENGTH.size, MAX_JSON_BYTES):
            raise FormatError("an encoded chunk is cut short", where=path)
        file.seek(size - LENGTH.size - length)
        return parse_canonical(file.read(length), where=path)


def _bytes(array: np.ndarray) -> memoryview:
    return memoryview(array.view(np.uint8).data if array.size else b"")


def _checksum(array: np.ndarray) -> int:
    return xxhash.xxh3_64_intdigest(_bytes(array))
