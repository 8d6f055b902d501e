"""Megatron pairs: `prefix.bin` with the tokens, `prefix.idx` with sequences and documents.

    .idx   magic 9 · version u64 · dtype code u8 · sequences S u64 · document entries D u64
           lengths i32[S] · pointers (bytes) i64[S] · documents i64[D] · [modes i8[S]]

The path may be the prefix, either file, or a folder of pairs. The pairs of a
folder are the shards of the split "train", unless one of them is named like a
split: then each is a split of its own. Opening reads 34 bytes and three numbers of
each index; the index stays on disk (mode pread reads it when first asked) and is
checked from end to end before anything is sliced by it.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.errors import DamageError, FormatError, LayoutError, MissingFileError
from tokenreel.layouts.foreign import agree_dtype, assemble
from tokenreel.layouts.listing import BROKEN, SPLIT_NAMES, list_folder
from tokenreel.layouts.megatron_index import SequenceRanges, check_sequences
from tokenreel.layouts.metadata import read_metadata
from tokenreel.store.document_index import DocumentIndex
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.open_options import OpenOptions
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.store import Store

NAME = "megatron"
MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
VERSION = 1
REMEDY = "restore the file, or write it again"
DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
FLOATS = {6: "float64", 7: "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the first 34 bytes of an index say."""

    path: Path
    dtype: np.dtype
    num_sequences: int
    num_entries: int

    def array(self, name: str) -> tuple[int, np.dtype, int]:
        """Return where an array of the index starts, its dtype and its length."""
        lengths, pointers = HEADER.size, HEADER.size + 4 * self.num_sequences
        places: dict[str, tuple[int, np.dtype, int]] = {
            "lengths": (lengths, np.dtype("<i4"), self.num_sequences),
            "pointers": (pointers, np.dtype("<i8"), self.num_sequences),
            "documents": (pointers + 8 * self.num_sequences, np.dtype("<i8"), self.num_entries),
        }
        return places[name]

    @property
    def num_bytes(self) -> int:
        """How long the index is without modes."""
        return HEADER.size + 12 * self.num_sequences + 8 * self.num_entries


def fits(path: Path) -> str | None:
    """Say why a path is not Megatron pairs; None if it is."""
    return None if _prefixes(path) else "no pair of .bin and .idx files"


def open_layout(path: Path, options: OpenOptions) -> Store:
    """Open Megatron pairs: two stats and 34 bytes each; small indexes are checked."""
    prefixes = _prefixes(path)
    if not prefixes:
        raise LayoutError("no pair of .bin and .idx files", where=path)
    root = prefixes[0].parent
    headers = {prefix: read_header(_with(prefix, ".idx")) for prefix in prefixes}
    declared = agree_dtype(options, {h.path: h.dtype for h in headers.values()})
    shards: dict[str, list[Shard]] = {}
    named = any(prefix.name in SPLIT_NAMES for prefix in prefixes)
    for prefix, header in headers.items():
        split = prefix.name if named else "train"
        shards.setdefault(split, []).append(_shard(prefix, header, declared.dtype, options.mode))
    return assemble(
        path,
        layout=NAME,
        root=root,
        declared=declared,
        shards=shards,
        options=options,
        metadata=read_metadata(root),
    )


def _with(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)


def _prefixes(path: Path) -> list[Path]:
    """Return the prefixes of all pairs that a path stands for; of half a pair too."""
    if path.is_dir():
        found = _prefixes_in(path)
        if found or not path.name:
            return found
    prefix = path.with_name(path.stem) if path.suffix in (".bin", ".idx") else path
    files = [_with(prefix, suffix) for suffix in (".bin", ".idx")]
    if all(file.is_file() for file in files) or _has_magic(files[1]):
        return [prefix]
    return []


def _prefixes_in(folder: Path) -> list[Path]:
    files = list_folder(folder).files
    indexes = [name.removesuffix(".idx") for name in files if name.endswith(".idx")]
    known = any(f"{name}.bin" in files or _has_magic(folder / f"{name}.idx") for name in indexes)
    if not known:
        return []
    tokens = [name.removesuffix(".bin") for name in files if name.endswith(".bin")]
    return [folder / name for name in dict.fromkeys([*indexes, *tokens])]


def _has_magic(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe would make us wait for whoever writes to it
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(path: Path) -> Header:
    """Read and check the header of an index, and that the file has the size it implies."""
    try:
        if path.exists() and not path.is_file():
            raise DamageError("not a regular file", where=path, remedy=REMEDY)
        with path.open("rb") as file:
            head = file.read(HEADER.size)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise DamageError(f"cannot be read: {error.strerror}", where=path, remedy=REMEDY) from error
    if len(head) < HEADER.size:
        raise DamageError(
            "the index ends within its header",
            where=path,
            expected=f"{HEADER.size} bytes",
            actual=f"{len(head)} bytes",
            remedy=REMEDY,
        )
    magic, version, code, num_sequences, num_entries = HEADER.unpack(head)
    if magic != MAGIC:
        raise FormatError(
            "wrong magic at byte 0", where=path, expected=MAGIC, actual=magic, remedy=REMEDY
        )
    if version != VERSION:
        raise FormatError(
            "unknown version at byte 9", where=path, expected=1, actual=version, remedy=REMEDY
        )
    if code not in DTYPES:
        raise FormatError(
            "unknown token dtype at byte 17",
            where=path,
            expected=", ".join(f"{key} ({np.dtype(name)})" for key, name in DTYPES.items()),
            actual=f"{code} ({FLOATS[code]})" if code in FLOATS else code,
            remedy=REMEDY,
        )
    header = Header(
        path=path,
        dtype=np.dtype(DTYPES[code]),
        num_sequences=num_sequences,
        num_entries=num_entries,
    )
    if size not in (header.num_bytes, header.num_bytes + num_sequences):
        raise DamageError(
            f"the header declares {num_sequences:,} sequences and {num_entries:,} document "
            "entries, which is not the file's size",
            where=path,
            expected=f"{header.num_bytes:,} bytes, or {num_sequences:,} more with modes",
            actual=f"{size:,} bytes",
            remedy=REMEDY,
        )
    if num_entries == 0:
        raise DamageError(
            "there is no document entry", where=path, expected="at least 1", remedy=REMEDY
        )
    return header


def _shard(prefix: Path, header: Header, dtype: np.dtype, mode: str) -> Shard:
    path = _with(prefix, ".bin")
    try:
        size = path.stat().st_size
    except OSError:
        size = BROKEN
    expected = _tokens_end(header)
    if size != expected:
        kind = MissingFileError if size == BROKEN else DamageError
        raise kind(
            "the file is missing" if size == BROKEN else "the tokens are not what the index says",
            where=path,
            expected=f"{expected:,} bytes",
            actual=None if size == BROKEN else f"{size:,} bytes",
            remedy=REMEDY,
        )
    tokens = ArrayFile(path=path, dtype=dtype, count=size // dtype.itemsize)
    return Shard(
        name=path.name,
        token_file=tokens,
        index_file=IndexFile(
            path=header.path,
            count=header.num_entries - 1,
            load=lambda: _load_index(header, tokens, mode),
            is_mapped=mode == "mmap",
        ),
        mode=mode,
    )


def _tokens_end(header: Header) -> int:
    """Return the byte where the last sequence ends."""
    if header.num_sequences == 0:
        return 0
    last = {}
    with header.path.open("rb") as file:
        for name in ("lengths", "pointers"):
            start, dtype, count = header.array(name)
            position = start + (count - 1) * dtype.itemsize
            data = os.pread(file.fileno(), dtype.itemsize, position)
            last[name] = int.from_bytes(data, "little", signed=True)
    return last["pointers"] + last["lengths"] * header.dtype.itemsize


def _load_index(header: Header, tokens: ArrayFile, mode: str) -> DocumentIndex:
    size = header.path.stat().st_size
    data = ArrayFile(path=header.path, dtype=np.dtype(np.uint8), count=size).whole(mode)

    def array(name: str) -> np.ndarray:
        start, dtype, count = header.array(name)
        return np.frombuffer(data, dtype, count, start)

    ranges = SequenceRanges(
        lengths=array("lengths"),
        pointers=array("pointers"),
        documents=array("documents"),
        itemsize=tokens.dtype.itemsize,
        num_tokens=tokens.count,
    )
    check_sequences(ranges, where=header.path)
    return ranges
