"""A typed array that lies in a file, read by mapping or by pread.

Mapping is the default: no copy, no memory of its own, shared by processes, no descriptor
(mappings.py). A mapped file that is truncated meanwhile is a DamageError where a kernel
reads it, which is what makes batches (native/guard.c). Whatever else reads the array, numpy
above all, is killed by SIGBUS: that is the one exception. Where batches are made without the
kernels, the sizes of sidecars are looked at right before (`Shard.check_sidecars`), so that only a
file that is cut off within these microseconds is noticed too late. `pread` costs a copy, maps
nothing and raises an error always.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError, DamageError
from tokenreel.store.mappings import map_file, with_descriptor

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
                remedy="restore the file, or open the store again if it was replaced",
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
        if self.offset % self.dtype.itemsize:
            return self.read(0, self.count)  # a kernel reads no number across two words
        try:
            mapped = map_file(self.path)
            return np.frombuffer(mapped, self.dtype, self.count, self.offset)
        except (OSError, ValueError) as error:
            self.check_size()  # the file may have gone or changed since the last check
            raise DamageError(
                f"cannot be mapped: {error}",
                where=self.path,
                remedy='open the store with mode="pread", or move it to another file system',
            ) from error

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return a copy of items start to stop, or raise DamageError if the file has lost them."""
        if start == stop:
            return np.empty(0, self.dtype)
        try:
            # Not to wait at a pipe that was put in the file's place: it is found too short.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = with_descriptor(lambda: os.open(self.path, flags), self.path)
            try:
                return self._read(descriptor, start, stop)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise DamageError(
                f"cannot be read: {error.strerror}",
                where=self.path,
                remedy="restore the file, or open the store again if it was replaced",
            ) from error

    def whole(self, mode: str) -> np.ndarray:
        """Return the whole array: mapped (mode mmap), or a copy of it (mode pread)."""
        return self.map() if mode == "mmap" else self.read(0, self.count)

    def _read(self, descriptor: int, start: int, stop: int) -> np.ndarray:
        position = self.offset + start * self.dtype.itemsize
        end = self.offset + stop * self.dtype.itemsize
        if os.fstat(descriptor).st_size < end:
            raise self._ends_early(descriptor)  # before anything is allocated for a wild count
        items = np.empty(stop - start, self.dtype)
        view = items.data.cast("B")
        while len(view):
            got = os.preadv(descriptor, [view], position)
            if got == 0:
                raise self._ends_early(descriptor)
            view = view[got:]
            position += got
        return items

    def _ends_early(self, descriptor: int) -> DamageError:
        return DamageError(
            f"the file ends at byte {os.fstat(descriptor).st_size:,}, before what is read",
            where=self.path,
            expected=f"{self.file_bytes:,} bytes",
            remedy="restore the file or build the store again",
        )


def check_mode(mode: str) -> str:
    """Return the read mode, or raise ConfigError."""
    if mode not in MODES:
        raise ConfigError("unknown read mode", expected=" or ".join(MODES), actual=repr(mode))
    return mode
