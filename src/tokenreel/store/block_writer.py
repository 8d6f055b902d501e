"""Write a file block by block, with the SHA-256 of each block.

Blocks are hashed on a second thread, a few behind the one being written (hashlib,
write and fsync all release the GIL), so checksums cost what the slower of the two
costs, not their sum: SHA-256 runs at about 1.4 GB/s a core here. Memory: at most
PENDING_BLOCKS + 1 blocks per open file.
"""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tokenreel.filesystem import FileSystem, OutputFile, temporary_name

BLOCK_BYTES = 1024 * 1024
PENDING_BLOCKS = 8
HASTEN_BLOCKS = 8  # how many are written before the disk is asked to begin with them


class BlockWriter:
    """Stream bytes into a temporary file; `finish` gives it its name."""

    def __init__(
        self, path: Path, *, block_bytes: int, filesystem: FileSystem, hasher: ThreadPoolExecutor
    ) -> None:
        self.path = path
        self.digests: list[str] = []
        self._filesystem = filesystem
        self._hasher = hasher
        self._buffer = memoryview(bytearray(block_bytes))
        self._filled = 0
        self._num_written = 0
        self._pending: deque[tuple[Future[str], memoryview]] = deque()
        self._file: OutputFile = filesystem.create(temporary_name(path))

    def write(self, data: np.ndarray | bytes) -> None:
        """Append the bytes of `data`, which may change afterwards: they are copied."""
        contiguous = np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data
        view = memoryview(contiguous)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        while len(view):
            taken = min(len(self._buffer) - self._filled, len(view))
            self._buffer[self._filled : self._filled + taken] = view[:taken]
            self.advance(taken)
            view = view[taken:]

    def room(self, dtype: np.dtype) -> np.ndarray:
        """Return the free part of the current block, to be filled in place before `advance`."""
        return np.frombuffer(self._buffer, dtype, offset=self._filled)

    def advance(self, num_bytes: int) -> None:
        """Count bytes that were put into the current block; a full one is written."""
        self._filled += num_bytes
        if self._filled == len(self._buffer):
            self._flush()

    def end(self) -> None:
        """Write what is left; `finish` of several files waits less if they all have ended first."""
        if self._filled:
            self._flush()
        self._file.hasten()

    def finish(self) -> None:
        """Make it durable and give the file its name."""
        self.end()
        self._file.finish()
        while self._pending:
            self._take_digest()
        self._filesystem.rename(self._file.path, self.path)

    def abandon(self) -> None:
        """Remove the temporary file, if it is still there."""
        self._file.close()
        self._filesystem.discard(self._file.path)

    def _flush(self) -> None:
        block = self._buffer[: self._filled]
        self._pending.append((self._hasher.submit(_sha256, block), self._buffer))
        self._file.write(block)
        self._num_written += 1
        if self._num_written % HASTEN_BLOCKS == 0:
            self._file.hasten()
        full = len(self._pending) > PENDING_BLOCKS
        self._buffer = self._take_digest() if full else memoryview(bytearray(len(self._buffer)))
        self._filled = 0

    def _take_digest(self) -> memoryview:
        """Wait for the oldest block's digest and return its buffer, free again."""
        hashed, buffer = self._pending.popleft()
        self.digests.append(hashed.result())
        return buffer


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
