"""A fingerprint for token files that carry no checksums.

Hashing terabytes to open them would be absurd, so the fingerprint of a foreign
layout covers names, sizes, dtype, every byte of its document indexes (rows are cut by
them), and samples of all else: the first and last 64 KiB of each
file and 16 pieces of 4 KiB between. It notices another tokenizer, another order,
an appended or rewritten file; a changed token it may miss. It is the same wherever the
files lie and whenever they were written. Converted to the native layout, every byte counts.

What is kept of foreign files from one run to the next (row plans, documents found by their
end token) also carries a stamp of sizes and times, which changes with every write.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tokenreel.canonical import digest
from tokenreel.errors import DamageError
from tokenreel.store.mappings import with_descriptor
from tokenreel.store.shard import Shard

T = TypeVar("T")
VERSION = 2  # 1 sampled indexes as well
WHOLE_BYTES = 1 << 22
EDGE_BYTES = 64 * 1024
SAMPLE_BYTES = 4 * 1024
NUM_SAMPLES = 16


def foreign_fingerprint(root: Path, shards: Iterable[Shard], *, facts: dict[str, object]) -> str:
    """Return a digest of the facts and of the files of shards, wherever `root` lies."""
    sampled, whole = set[Path](), set[Path]()
    for shard in shards:
        sampled.update(file.path for file in shard.files)
        if shard.index_file is not None:
            whole.add(shard.index_file.path)
    files = {
        str(file.relative_to(root)): _digest(file, is_sampled=file not in whole)
        for file in sorted(sampled | whole)
    }
    return digest({"version": VERSION, "facts": facts, "files": files})


def file_stamp(shards: Iterable[Shard]) -> str:
    """Return a digest of sizes and times of the files of foreign shards.

    An index that was found by a scan has a stamp of its own (eos_scan.py).
    """
    files = set[Path]()
    for shard in shards:
        files.update(file.path for file in shard.files)
        if shard.index_file is not None and not shard.index_file.is_scanned:
            files.add(shard.index_file.path)
    found = [(file.name, _readable(file.stat, file)) for file in sorted(files)]
    return digest({"files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in found]})


def _readable(ask: Callable[[], T], path: Path) -> T:
    """Return what is asked of a file, or raise DamageError if it cannot be read."""
    try:
        return with_descriptor(ask, path)
    except OSError as error:
        raise DamageError(
            f"cannot be read: {error.strerror}",
            where=path,
            remedy="restore the file, or open the store again if it was replaced",
        ) from error


def _digest(path: Path, *, is_sampled: bool) -> list[object]:
    """Return the size of a file and the SHA-256 of all of it, or of samples."""
    hasher = hashlib.sha256()
    with _readable(lambda: path.open("rb", buffering=0), path) as file:
        size = os.fstat(file.fileno()).st_size
        for start, length in _pieces(size) if is_sampled else _blocks(size):
            hasher.update(os.pread(file.fileno(), length, start))
    return [size, hasher.hexdigest()]


def _blocks(size: int) -> list[tuple[int, int]]:
    return [(start, WHOLE_BYTES) for start in range(0, size, WHOLE_BYTES)]


def _pieces(size: int) -> list[tuple[int, int]]:
    if size <= 2 * EDGE_BYTES + NUM_SAMPLES * SAMPLE_BYTES:
        return [(0, size)]
    step = (size - 2 * EDGE_BYTES) // NUM_SAMPLES
    between = [(EDGE_BYTES + step * i, SAMPLE_BYTES) for i in range(NUM_SAMPLES)]
    return [(0, EDGE_BYTES), *between, (size - EDGE_BYTES, EDGE_BYTES)]
