"""The header of an .npy file, and nothing else of it: read and written.

It is parsed from at most 64 KiB by numpy's own parser, the declared size
is compared with the file's before anything is mapped, and objects (that is,
pickles) are refused always: there is no switch.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.lib import format as npy_format

from tokenreel.errors import DamageError, FormatError
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.open_options import FOREIGN_DTYPES

HEADER_BYTES = 64 * 1024


def npy_header(count: int, dtype: np.dtype) -> bytes:
    """Return what stands before the items of a flat array."""
    header = io.BytesIO()
    facts = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
    npy_format.write_array_header_1_0(header, facts)
    return header.getvalue()


def read_npy(path: Path, size: int) -> ArrayFile:
    """Return the flat integer array that an .npy file of `size` bytes holds, or raise."""
    shape, fortran_order, dtype, offset = _header(path)
    _check_dtype(path, dtype)
    if len(shape) != 1:
        order = " in Fortran order" if fortran_order else ""
        _refuse(path, f"the array is not flat{order}", expected="1 dimension", actual=shape)
    array = ArrayFile(path=path, dtype=dtype, count=shape[0], offset=offset)
    if shape[0] < 0 or array.file_bytes != size:
        raise DamageError(
            f"the header at byte 0 declares {shape[0]:,} items of {dtype.name}, "
            "which is not the file's size",
            where=path,
            expected=f"{array.file_bytes:,} bytes",
            actual=f"{size:,} bytes",
            remedy="restore the file",
        )
    return array


def _header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    try:
        with path.open("rb") as file:
            head = io.BytesIO(file.read(HEADER_BYTES))
    except OSError as error:
        raise DamageError(f"cannot be read: {error.strerror}", where=path) from error
    readers: dict[tuple[int, int], Any] = {
        (1, 0): npy_format.read_array_header_1_0,
        (2, 0): npy_format.read_array_header_2_0,
    }
    try:
        version = npy_format.read_magic(head)
        shape, fortran_order, dtype = readers[version](head)
    except KeyError:
        _refuse(path, "unknown .npy version", expected="1.0 or 2.0", actual=version)
    except Exception as error:  # the parser lets through whatever its tokenizer raises
        raise FormatError(
            f"not an .npy header at byte 0: {str(error).splitlines()[0][:200]}",
            where=path,
            remedy="if the file holds bare tokens, name it .bin",
        ) from error
    return shape, fortran_order, dtype, head.tell()


def _check_dtype(path: Path, dtype: np.dtype) -> None:
    if dtype.hasobject:
        _refuse(
            path,
            "the array holds Python objects, which only a pickle could load; refused",
            remedy="save the tokens as integers",
        )
    if dtype.byteorder == ">":
        _refuse(path, "the array is big-endian", expected="little-endian", actual=dtype.str)
    if dtype.name not in FOREIGN_DTYPES:
        _refuse(
            path, "unknown token dtype", expected=", ".join(FOREIGN_DTYPES), actual=str(dtype)[:80]
        )


def _refuse(
    path: Path,
    what: str,
    *,
    expected: object = None,
    actual: object = None,
    remedy: str = "save the tokens as a flat array of little-endian integers",
) -> NoReturn:
    raise FormatError(what, where=path, expected=expected, actual=actual, remedy=remedy)
