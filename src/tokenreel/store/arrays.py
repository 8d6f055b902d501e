"""A typed array that lies in a file, read by mapping or by pread.

Mapping is the default: no copy, no memory of its own, shared by processes. A
mapped file that is truncated meanwhile kills the reader by SIGBUS; `pread` costs
a copy and raises an error instead.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError, DamageError

MODES = ("mmap", "pread")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFile:
    """`count` items of `dtype` in a file, from byte `offset` on to its end."""

    path: Path
    dtype: np.dtype
    count: int
    offset: int = 0

    @property
    def file_bytes(self) -> int:
        """How long the file must be."""
        return self.offset + self.count * self.dtype.itemsize

    def check_size(self) -> None:
        """Raise DamageError unless the file has exactly the size it must have."""
        try:
            actual = self.path.stat().st_size
        except OSError as error:
            raise DamageError(
                f"cannot be read: {error.strerror}",
                where=self.path,
                expected=f"{self.file_bytes:,} bytes",
            ) from error
        if actual != self.file_bytes:
            raise DamageError(
                f"the file is too {'short' if actual < self.file_bytes else 'long'}",
                where=self.path,
                expected=f"{self.file_bytes:,} bytes",
                actual=f"{actual:,} bytes",
                remedy="restore the file or build the store again",
            )

    def map(self) -> np.ndarray:
        """Return the whole array without reading it; the size is checked first."""
        self.check_size()
        if self.count == 0:
            return np.empty(0, self.dtype)
        with self.path.open("rb") as file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError as error:
                raise DamageError(
                    f"cannot be mapped: {error.strerror}",
                    where=self.path,
                    remedy='raise vm.max_map_count, or open the store with mode="pread"',
                ) from error
        return np.frombuffer(mapped, self.dtype, self.count, self.offset)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return a copy of items start to stop, or raise DamageError if the file has lost them."""
        items = np.empty(stop - start, self.dtype)
        view = items.data.cast("B") if len(items) else memoryview(b"")
        position = self.offset + start * self.dtype.itemsize
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while len(view):
                got = os.preadv(descriptor, [view], position)
                if got == 0:
                    raise DamageError(
                        f"the file ends at byte {position:,}, in the middle of what is read",
                        where=self.path,
                        expected=f"{self.file_bytes:,} bytes",
                        remedy="restore the file or build the store again",
                    )
                view = view[got:]
                position += got
        finally:
            os.close(descriptor)
        return items


def check_mode(mode: str) -> str:
    """Return the read mode, or raise ConfigError."""
    if mode not in MODES:
        raise ConfigError("unknown read mode", expected=" or ".join(MODES), actual=repr(mode))
    return mode
