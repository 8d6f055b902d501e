"""What the caller of `open_store` declares, handed to every layout."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError, FormatError, VocabularyError
from tokenreel.store.file_arrays import ArrayFile

logger = logging.getLogger(__name__)

FOREIGN_DTYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "int64")
DTYPE_NAME = re.compile(r"[A-Za-z_]{1,16}[0-9]{0,2}")
EDGE_TOKENS = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """Declarations that win over what a layout's own metadata says."""

    dtype: np.dtype | None = None
    vocab_size: int | None = None
    eos_id: int | None = None
    file_pattern: str | None = None
    mode: str = "mmap"


def parse_dtype(name: object, *, where: str | Path) -> np.dtype:
    """Return the little-endian token dtype of this name, or raise FormatError.

    >>> parse_dtype("uint16-le", where="meta.json").name
    'uint16'
    """
    plain = str(name).removesuffix("-le").removeprefix("<").removeprefix("numpy.").strip()
    try:
        # Nothing but names: numpy evaluates what looks like a structure.
        dtype = np.dtype(plain if DTYPE_NAME.fullmatch(plain) else object)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.name not in FOREIGN_DTYPES or str(name).startswith(">"):
        raise FormatError(
            "unknown token dtype",
            where=where,
            expected=", ".join(FOREIGN_DTYPES),
            actual=repr(name),
        )
    return dtype.newbyteorder("<")


def infer_dtype(sizes: dict[Path, int], *, root: Path) -> np.dtype:
    """Choose uint32 if every file is a multiple of 4 bytes long, else uint16, and say so.

    The last resort, where neither the caller nor any metadata declares the dtype.
    """
    for path, size in sizes.items():
        if size % 2:
            raise FormatError(
                "the size is odd, so the file holds neither uint16 nor uint32",
                where=path,
                actual=f"{size:,} bytes",
                remedy="declare the dtype",
            )
    dtype = np.dtype("<u4" if all(size % 4 == 0 for size in sizes.values()) else "<u2")
    logger.warning(
        "%s: nothing declares the token dtype; by the file sizes it is taken to be %s. "
        "Declare it (dtype=…) to be sure",
        root,
        dtype.name,
    )
    return dtype


def check_edges(file: ArrayFile, vocab_size: int | None, *, dtype_source: str) -> None:
    """Check the ids at both ends of a file against the vocabulary: a wrong dtype shows at once."""
    if vocab_size is None or file.count == 0:
        return
    edge = min(EDGE_TOKENS, file.count)
    for start in {0, file.count - edge}:
        ids = file.read(start, start + edge)
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= vocab_size:
            raise VocabularyError(
                f"ids do not fit the vocabulary when read as {file.dtype.name} "
                f"(dtype from {dtype_source})",
                where=file.path,
                expected=f"0 to {vocab_size - 1:,}",
                actual=low if low < 0 else high,
                remedy="declare the right dtype or the right vocab_size",
            )


def check_vocab_size(vocab_size: int | None) -> None:
    """Refuse a vocabulary that is none."""
    if vocab_size is not None and vocab_size < 1:
        raise ConfigError("bad vocab_size", expected=">= 1", actual=vocab_size)
