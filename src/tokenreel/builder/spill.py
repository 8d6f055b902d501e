"""An encoded chunk on disk, until the store is whole.

A folder of .npy files and a summary, `00012/`, that appears by one rename: a chunk
is there whole or not at all, however often it is encoded, by whichever worker. It
is not fsynced: if the machine dies, the checksums in the summary tell, and the
chunk is encoded again. The chunks of a build take as much disk as its store.
"""

from __future__ import annotations

import shutil
import uuid
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.store.canonical import canonical_bytes, read_canonical

SUMMARY_NAME = "summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of an encoded chunk without reading its arrays."""

    number: int
    documents: int
    tokens: int
    text_bytes: int
    engine: str
    cursor: dict[str, Any] | None = None
    skipped: dict[str, int] = field(default_factory=dict)
    checksums: dict[str, int] = field(default_factory=dict)


class Spill:
    """The folder that holds the encoded chunks of a build."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, summary: Summary, arrays: dict[str, np.ndarray]) -> Summary:
        """Put a chunk there; if another worker was faster, that one stays."""
        checksums = {name: _checksum(array) for name, array in arrays.items()}
        whole = Summary(**{**asdict(summary), "checksums": checksums})
        temporary = self.folder / f"{summary.number:06d}.{uuid.uuid4().hex}.tmp"
        temporary.mkdir(parents=True)
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        (temporary / SUMMARY_NAME).write_bytes(canonical_bytes(asdict(whole)))
        try:
            temporary.rename(self._place(summary.number))
        except OSError:
            shutil.rmtree(temporary)
            return self.summary(summary.number) or whole
        return whole

    def summary(self, number: int) -> Summary | None:
        """Return the summary of a chunk, or None if it is not there or not whole."""
        path = self._place(number) / SUMMARY_NAME
        if not path.exists():
            return None
        try:
            summary = Summary(**read_canonical(path))  # type: ignore[arg-type]
            self._check(summary)
        except (FormatError, TypeError, ValueError, OSError):
            shutil.rmtree(self._place(number))
            return None
        return summary

    def arrays(self, number: int) -> dict[str, np.ndarray]:
        """Return the arrays of a chunk, mapped."""
        return {
            path.stem: np.load(path, mmap_mode="r", allow_pickle=False)
            for path in self._place(number).glob("*.npy")
        }

    def _check(self, summary: Summary) -> None:
        arrays = self.arrays(summary.number)
        if {name: _checksum(array) for name, array in arrays.items()} != summary.checksums:
            raise FormatError("an encoded chunk is damaged", where=self._place(summary.number))

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:06d}"


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
