"""A fingerprint for token files that carry no checksums.

Hashing terabytes to open them would be absurd, so the fingerprint of a foreign
layout covers names, sizes, dtype and samples: the first and last 64 KiB of each
file and 16 pieces of 4 KiB between. It notices another tokenizer, another order,
an appended or rewritten file; a single changed byte it may miss. Converted to the
native layout, every byte counts.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from tokenreel.store.canonical import digest

EDGE_BYTES = 64 * 1024
SAMPLE_BYTES = 4 * 1024
NUM_SAMPLES = 16


def sampled_fingerprint(root: Path, files: Iterable[Path], *, facts: dict[str, object]) -> str:
    """Return a digest of the facts and of samples of the files, wherever `root` lies."""
    samples = {str(file.relative_to(root)): _sample(file) for file in sorted(files)}
    return digest({"facts": facts, "files": samples})


def _sample(path: Path) -> list[object]:
    size = path.stat().st_size
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        for start, length in _pieces(size):
            hasher.update(os.pread(file.fileno(), length, start))
    return [size, hasher.hexdigest()]


def _pieces(size: int) -> list[tuple[int, int]]:
    if size <= 2 * EDGE_BYTES + NUM_SAMPLES * SAMPLE_BYTES:
        return [(0, size)]
    step = (size - 2 * EDGE_BYTES) // NUM_SAMPLES
    between = [(EDGE_BYTES + step * i, SAMPLE_BYTES) for i in range(NUM_SAMPLES)]
    return [(0, EDGE_BYTES), *between, (size - EDGE_BYTES, EDGE_BYTES)]
