"""Write a file block by block, with the SHA-256 of each block.

A block is hashed on a second thread while it is written (hashlib and write both
release the GIL), so checksums cost what the slower of the two costs, not their
sum: SHA-256 runs at about 1.4 GB/s a core here. Memory: one block per open file.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tokenreel.store.filesystem import FileSystem, OutputFile, temporary_name

BLOCK_BYTES = 1024 * 1024


class BlockWriter:
    """Stream bytes into a temporary file; `finish` gives it its name."""

    def __init__(
        self, path: Path, *, block_bytes: int, filesystem: FileSystem, hasher: ThreadPoolExecutor
    ) -> None:
        self.path = path
        self.num_bytes = 0
        self.digests: list[str] = []
        self._filesystem = filesystem
        self._hasher = hasher
        self._buffer = memoryview(bytearray(block_bytes))
        self._filled = 0
        self._file: OutputFile = filesystem.create(temporary_name(path))

    def write(self, data: np.ndarray | bytes) -> None:
        """Append the bytes of `data`."""
        contiguous = np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data
        view = memoryview(contiguous)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        self.num_bytes += len(view)
        block = len(self._buffer)
        while len(view):
            if self._filled == 0 and len(view) >= block:
                self._flush(view[:block])
                view = view[block:]
                continue
            taken = min(block - self._filled, len(view))
            self._buffer[self._filled : self._filled + taken] = view[:taken]
            self._filled += taken
            view = view[taken:]
            if self._filled == block:
                self._flush(self._buffer)
                self._filled = 0

    def finish(self) -> None:
        """Write what is left, make it durable and give the file its name."""
        if self._filled:
            self._flush(self._buffer[: self._filled])
            self._filled = 0
        self._file.sync()
        self._file.close()
        self._filesystem.rename(self._file.path, self.path)

    def abandon(self) -> None:
        """Remove the temporary file, if it is still there."""
        self._file.close()
        self._file.path.unlink(missing_ok=True)

    def _flush(self, block: memoryview) -> None:
        hashed = self._hasher.submit(_sha256, block)
        try:
            self._file.write(block)
        finally:
            self.digests.append(hashed.result())


def root_digest(digests: list[str]) -> str:
    """Return the one digest that stands for a file: SHA-256 over its block digests, in order.

    >>> root_digest([])[:8]
    'e3b0c442'
    """
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def block_digests(data: memoryview, block_bytes: int) -> list[str]:
    """Return the SHA-256 of each block of `data`."""
    starts = range(0, len(data), block_bytes)
    return [_sha256(data[start : start + block_bytes]) for start in starts]


def _sha256(data: memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
