"""Find documents by their end token, once, and keep what was found.

    tokens     a b E c d e E f          a document includes its end token;
    documents  └───┘ └─────┘ └          what follows the last one is a document too

The offsets (N + 1, uint64) go into a sidecar, with a record that says which file
they were made from and vouches for them by a checksum:

    .tokenreel/shard_0.bin.eos2.docs       .tokenreel/shard_0.bin.eos2.json

beside the shard, or under $XDG_CACHE_HOME/tokenreel (~/.cache/tokenreel) where the
folder cannot be written to. A sidecar of a file that has another size, time or
dtype now, or that fails its checksum, is made anew. A scan reads each token once,
a million at a time; it is not told of changes that keep
both size and time of a file.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.canonical import canonical_bytes, read_canonical
from tokenreel.errors import DamageError, FormatError, WriteError
from tokenreel.filesystem import LOCAL, TEMPORARY_SUFFIX, FileSystem, OutputFile
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
# The folder is not ours to write to; anything else (no space, a failing disk) is an error.
ELSEWHERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """The documents of one token file: N + 1 offsets in a file, and what vouches for them."""

    tokens: ArrayFile
    eos_id: int
    path: Path
    num_documents: int
    num_ends: int
    sha256: str
    filesystem: FileSystem = LOCAL


def open_sidecar(tokens: ArrayFile, eos_id: int, *, filesystem: FileSystem = LOCAL) -> Sidecar:
    """Return the sidecar of a token file, making it if there is none that fits."""
    key = _key(tokens, eos_id)
    for folder in _folders(tokens.path):
        sidecar = _read(folder, tokens, eos_id, key=key, filesystem=filesystem)
        if sidecar is not None:
            return sidecar
    return _build(tokens, eos_id, key=key, filesystem=filesystem)


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
    """Yield, piece by piece, the positions right after each end token."""
    for start in range(0, tokens.count, SCAN_TOKENS):
        piece = tokens.read(start, min(start + SCAN_TOKENS, tokens.count))
        yield np.flatnonzero(piece == eos_id) + (start + 1)


def _key(tokens: ArrayFile, eos_id: int) -> dict[str, object]:
    """Return what a sidecar must have been made from to be believed."""
    tokens.check_size()
    stat = tokens.path.stat()
    return {
        "format": FORMAT,
        "version": VERSION,
        "shard": tokens.path.name,
        "bytes": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "dtype": tokens.dtype.name,
        "offset": tokens.offset,
        "eos_id": eos_id,
    }


def _folders(shard: Path) -> tuple[Path, Path]:
    """Return where the sidecar of a shard may lie: beside it, else in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = hashlib.sha256(os.fsencode(shard.parent.resolve())).hexdigest()[:32]
    return shard.parent / SIDECAR_FOLDER, Path(cache) / "tokenreel" / "eos" / place


def _paths(folder: Path, tokens: ArrayFile, eos_id: int) -> tuple[Path, Path]:
    stem = f"{tokens.path.name}.eos{eos_id}"
    return folder / f"{stem}.docs", folder / f"{stem}.json"


def _read(
    folder: Path,
    tokens: ArrayFile,
    eos_id: int,
    *,
    key: dict[str, object],
    filesystem: FileSystem,
) -> Sidecar | None:
    path, record_path = _paths(folder, tokens, eos_id)
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
    return Sidecar(
        tokens=tokens,
        eos_id=eos_id,
        path=path,
        num_documents=documents,
        num_ends=ends,
        sha256=str(sha256),
        filesystem=filesystem,
    )


def _build(
    tokens: ArrayFile, eos_id: int, *, key: dict[str, object], filesystem: FileSystem
) -> Sidecar:
    beside, cache = _folders(tokens.path)
    try:
        return _write(beside, tokens, eos_id, key=key, filesystem=filesystem)
    except WriteError as error:
        if getattr(error.__cause__, "errno", None) not in ELSEWHERE:
            raise
        logger.info("%s cannot be written to; documents are kept in %s", beside, cache)
    return _write(cache, tokens, eos_id, key=key, filesystem=filesystem)


def _write(
    folder: Path,
    tokens: ArrayFile,
    eos_id: int,
    *,
    key: dict[str, object],
    filesystem: FileSystem,
) -> Sidecar:
    """Scan the tokens into a sidecar: offsets first, the record that vouches for them last."""
    filesystem.make_dir(folder)
    path, record_path = _paths(folder, tokens, eos_id)
    logger.info("%s: finding documents by end token %d", tokens.path, eos_id)
    with _appearing(path, filesystem) as output:
        num_documents, num_ends, sha256 = _write_offsets(output, tokens, eos_id)
        if _key(tokens, eos_id) != key:
            raise DamageError("the file was changed while it was scanned", where=tokens.path)
    record = {**key, "documents": num_documents, "ends": num_ends, "sha256": sha256}
    with _appearing(record_path, filesystem) as output:
        output.write(canonical_bytes(record))
    return Sidecar(
        tokens=tokens,
        eos_id=eos_id,
        path=path,
        num_documents=num_documents,
        num_ends=num_ends,
        sha256=sha256,
        filesystem=filesystem,
    )


@contextmanager
def _appearing(path: Path, filesystem: FileSystem) -> Iterator[OutputFile]:
    """Write a file that appears whole or not at all.

    Two processes may scan one shard at once: each writes under a name of its own,
    and both end with the same bytes.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
    output = filesystem.create(temporary)
    try:
        with output:
            yield output
            output.sync()
        filesystem.rename(temporary, path)
    except BaseException:
        filesystem.discard(temporary)
        raise
    filesystem.sync_dir(path.parent)


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
    offsets = _verified(sidecar, mode)
    if offsets is None:
        logger.warning("%s is damaged and is made anew", sidecar.path)
        key = _key(sidecar.tokens, sidecar.eos_id)
        again = _build(sidecar.tokens, sidecar.eos_id, key=key, filesystem=sidecar.filesystem)
        offsets = _verified(again, mode)
        if offsets is None or again.num_documents != sidecar.num_documents:
            raise DamageError(
                "the file was changed after the store was opened",
                where=sidecar.tokens.path,
                expected=f"{sidecar.num_documents:,} documents",
                actual=f"{again.num_documents:,} documents",
                remedy="open the store again",
            )
    return Offsets(offsets)


def _verified(sidecar: Sidecar, mode: str) -> np.ndarray | None:
    """Return the offsets if they are what the record vouches for."""
    file = ArrayFile(path=sidecar.path, dtype=OFFSET, count=sidecar.num_documents + 1)
    try:
        offsets = file.whole(mode)
    except (DamageError, OSError):
        return None
    view = offsets.data.cast("B")
    hasher = hashlib.sha256()
    for start in range(0, len(view), HASH_BYTES):
        hasher.update(view[start : start + HASH_BYTES])
    hasher.update(b"%d" % sidecar.num_ends)
    return offsets if hasher.hexdigest() == sidecar.sha256 else None
