"""Find documents by their end token, once, and keep what was found.

    tokens     a b E c d e E f          a document includes its end token;
    documents  └───┘ └─────┘ └          what follows the last one is a document too

The offsets (N + 1, uint64) go into a sidecar, with a record that says which file
they were made from and vouches for them by a checksum:

    .tokenreel/shard_0.bin.eos2.docs       .tokenreel/shard_0.bin.eos2.json

beside the shard, or in the user's cache folder (store/derived.py). A sidecar of a file that has
another size, time or dtype now, or that fails its checksum, is made anew. A scan reads each token
once, a million at a time; it is not told of changes that keep both size and time of a file.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.canonical import canonical_bytes, read_canonical
from tokenreel.errors import DamageError, FormatError
from tokenreel.filesystem import LOCAL, FileSystem, OutputFile, unique_name
from tokenreel.store.derived import cache_folder, load_or_make
from tokenreel.store.document_index import DocumentIndex, Offsets
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.shard import IndexFile

logger = logging.getLogger(__name__)

SIDECAR_FOLDER = ".tokenreel"
FORMAT = "tokenreel-eos"
VERSION = 1
OFFSET = np.dtype("<u8")
SCAN_TOKENS = 1024 * 1024
HASH_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The search for the documents of one token file."""

    tokens: ArrayFile
    eos_id: int
    filesystem: FileSystem

    def key(self) -> dict[str, object]:
        """Return what a sidecar must have been made from to be believed."""
        self.tokens.check_size()
        stat = self.tokens.path.stat()
        return {
            "format": FORMAT,
            "version": VERSION,
            "shard": self.tokens.path.name,
            "bytes": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
            "dtype": self.tokens.dtype.name,
            "offset": self.tokens.offset,
            "eos_id": self.eos_id,
        }

    def folders(self) -> tuple[Path, Path]:
        """Return where the sidecar may lie: beside the token file, else in the user's cache."""
        beside = self.tokens.path.parent
        place = hashlib.sha256(os.fsencode(beside.resolve())).hexdigest()[:32]
        return beside / SIDECAR_FOLDER, cache_folder("eos", place)

    def paths(self, folder: Path) -> tuple[Path, Path]:
        """Return the files of offsets and record in a folder."""
        stem = f"{self.tokens.path.name}.eos{self.eos_id}"
        return folder / f"{stem}.docs", folder / f"{stem}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """The documents of one token file: N + 1 offsets in a file, and what vouches for them."""

    scan: Scan
    path: Path
    num_documents: int
    num_ends: int
    sha256: str


def open_sidecar(tokens: ArrayFile, eos_id: int, *, filesystem: FileSystem = LOCAL) -> Sidecar:
    """Return the sidecar of a token file, making it if there is none that fits."""
    return _read_or_write(Scan(tokens=tokens, eos_id=eos_id, filesystem=filesystem))


def index_file(sidecar: Sidecar, *, mode: str) -> IndexFile:
    """Return the sidecar as a document index that is checked when first asked."""
    return IndexFile(
        path=sidecar.path,
        count=sidecar.num_documents,
        load=lambda: _load(sidecar, mode),
        is_mapped=mode == "mmap",
        is_scanned=True,
    )


def scan_ends(tokens: ArrayFile, eos_id: int) -> Iterator[np.ndarray]:
    """Yield, part by part, the positions right after each end token."""
    for start in range(0, tokens.count, SCAN_TOKENS):
        part = tokens.read(start, min(start + SCAN_TOKENS, tokens.count))
        yield np.flatnonzero(part == eos_id) + (start + 1)


def _read_or_write(scan: Scan, check: Callable[[Sidecar], object] | None = None) -> Sidecar:
    """Return a sidecar that fits the token file; `check` raises StoreError if it is damaged."""
    key = scan.key()

    def load(folder: Path) -> Sidecar | None:
        sidecar = _read(folder, scan, key)
        if sidecar is not None and check is not None:
            check(sidecar)
        return sidecar

    return load_or_make(
        "index of documents",
        scan.folders(),
        load=load,
        make=lambda folder: _write(folder, scan, key),
        filesystem=scan.filesystem,
    )


def _read(folder: Path, scan: Scan, key: dict[str, object]) -> Sidecar | None:
    """Return the sidecar in a folder; None if there is none that was made from this very file."""
    path, record_path = scan.paths(folder)
    try:
        if not record_path.is_file():
            return None
        record = read_canonical(record_path)
        size = path.stat().st_size
    except (FormatError, OSError):
        return None
    found = {name: record.pop(name, None) for name in ("documents", "ends", "sha256")}
    documents, ends, sha256 = found.values()
    if record != key or not isinstance(documents, int) or not isinstance(ends, int):
        return None
    if size != (documents + 1) * OFFSET.itemsize:
        return None
    return Sidecar(scan=scan, path=path, num_documents=documents, num_ends=ends, sha256=str(sha256))


def _write(folder: Path, scan: Scan, key: dict[str, object]) -> Sidecar:
    """Scan the tokens into a sidecar: offsets first, the record that vouches for them last."""
    path, record_path = scan.paths(folder)
    filesystem = scan.filesystem
    logger.info("%s: finding documents by end token %d", scan.tokens.path, scan.eos_id)
    with filesystem.whole_file(path, temporary=unique_name(path)) as output:
        num_documents, num_ends, sha256 = _write_offsets(output, scan.tokens, scan.eos_id)
        if scan.key() != key:
            raise DamageError("the file was changed while it was scanned", where=scan.tokens.path)
    record = {**key, "documents": num_documents, "ends": num_ends, "sha256": sha256}
    with filesystem.whole_file(record_path, temporary=unique_name(record_path)) as output:
        output.write(canonical_bytes(record))
    return Sidecar(
        scan=scan, path=path, num_documents=num_documents, num_ends=num_ends, sha256=sha256
    )


def _write_offsets(output: OutputFile, tokens: ArrayFile, eos_id: int) -> tuple[int, int, str]:
    """Write the offsets; return how many documents and end tokens there are, and the SHA-256."""
    hasher = hashlib.sha256()
    num_offsets = num_ends = last = 0

    def append(offsets: np.ndarray) -> None:
        nonlocal num_offsets, last
        if len(offsets):
            data = offsets.astype(OFFSET).tobytes()
            hasher.update(data)
            output.write(data)
            num_offsets += len(offsets)
            last = int(offsets[-1])

    append(np.zeros(1, OFFSET))
    for ends in scan_ends(tokens, eos_id):
        append(ends)
        num_ends += len(ends)
    if last != tokens.count:
        append(np.array([tokens.count], OFFSET))
    hasher.update(b"%d" % num_ends)
    return num_offsets - 1, num_ends, hasher.hexdigest()


def _load(sidecar: Sidecar, mode: str) -> DocumentIndex:
    """Map the offsets; a sidecar that fails its checksum is made anew from the tokens."""
    try:
        return Offsets(_offsets(sidecar, mode))
    except DamageError:
        again = _read_or_write(sidecar.scan, check=lambda found: _offsets(found, mode))
    if again.num_documents != sidecar.num_documents:
        raise DamageError(
            "the file was changed after the store was opened",
            where=sidecar.scan.tokens.path,
            expected=f"{sidecar.num_documents:,} documents",
            actual=f"{again.num_documents:,} documents",
            remedy="open the store again",
        )
    return Offsets(_offsets(again, mode))


def _offsets(sidecar: Sidecar, mode: str) -> np.ndarray:
    """Return the offsets, or raise DamageError if they are not what the record vouches for."""
    file = ArrayFile(path=sidecar.path, dtype=OFFSET, count=sidecar.num_documents + 1)
    offsets = file.whole(mode)
    view = offsets.data.cast("B")
    hasher = hashlib.sha256()
    for start in range(0, len(view), HASH_BYTES):
        hasher.update(view[start : start + HASH_BYTES])
    hasher.update(b"%d" % sidecar.num_ends)
    if hasher.hexdigest() != sidecar.sha256:
        raise DamageError("the offsets fail their checksum", where=sidecar.path)
    return offsets
