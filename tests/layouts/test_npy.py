"""The header of an .npy file, whole and damaged."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.errors import DamageError, FormatError
from tokenreel.layouts.npy import read_npy
from tokenreel.store.file_arrays import ArrayFile


def header(shape: str, descr: str = "'<u2'", fortran: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"
    padded = text.encode() + b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


def read(path: Path, data: bytes) -> ArrayFile:
    path.write_bytes(data)
    return read_npy(path, len(data))


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_a_flat_array_is_found_behind_its_header(tmp_path, version):
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.array([1, 2, 3], "<u4"), version=version)
    array = read_npy(path, path.stat().st_size)
    assert (array.count, array.dtype) == (3, np.dtype("<u4"))
    assert array.map().tolist() == [1, 2, 3]


def test_a_count_of_2_to_the_63_is_an_error_and_allocates_nothing(tmp_path):
    tracemalloc.start()
    try:
        with pytest.raises(DamageError, match=r"declares 9,223,372,036,854,775,808 items"):
            read(tmp_path / "a.npy", header(f"({2**63},)") + bytes(6))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_a_header_of_4_gb_is_an_error_and_allocates_nothing(tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
    with path.open("r+b") as file:
        file.truncate(2**33)  # a sparse file: nothing is written
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"not an \.npy header"):
            read_npy(path, 2**33)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an .npy header"),
        (np.arange(99, dtype="<u2").tobytes(), r"not an \.npy header.*name it \.bin"),
        (header("(3,)")[:40], "not an .npy header"),
        (b"\x93NUMPY\x03\x00" + header("(3,)")[8:], "unknown .npy version"),
        (header("(3, 1)") + bytes(6), r"not flat \(expected 1 dimension, got \(3, 1\)\)"),
        (header("(3, 2)", fortran="True") + bytes(12), "not flat in Fortran order"),
        (header("()") + bytes(2), "not flat"),
        (header("(3,)", "'>u2'") + bytes(6), "big-endian"),
        (header("(3,)", "'<f4'") + bytes(12), "unknown token dtype"),
        (header("(3,)", "'<u8'") + bytes(24), "unknown token dtype"),
        (header("(3,)", "[('a', '<u2')]") + bytes(6), "unknown token dtype"),
        (header("(3,)", "'|O'") + bytes(24), "Python objects"),
        (header("('x',)"), "not an .npy header"),
    ],
)
def test_what_is_not_a_flat_little_endian_array_is_refused(tmp_path, data, message):
    with pytest.raises(FormatError, match=message):
        read(tmp_path / "a.npy", data)


@pytest.mark.parametrize("size", [0, 5, 7, 8])
def test_a_body_of_a_wrong_size_is_damage(tmp_path, size):
    with pytest.raises(DamageError, match=r"expected 134 bytes"):
        read(tmp_path / "a.npy", header("(3,)") + bytes(size))


def test_a_negative_count_is_damage(tmp_path):
    with pytest.raises((DamageError, FormatError)):
        read(tmp_path / "a.npy", header("(-1,)"))


@settings(max_examples=60, deadline=None)
@given(position=st.integers(0, 133), value=st.integers(0, 255))
def test_any_changed_byte_gives_an_array_of_the_same_size_or_an_error(
    tmp_path_factory, position, value
):
    whole = io.BytesIO()
    np.save(whole, np.array([1, 2, 3], "<u2"))
    data = bytearray(whole.getvalue())
    data[position] = value
    path = tmp_path_factory.getbasetemp() / "flipped.npy"
    try:
        array = read(path, bytes(data))
    except (FormatError, DamageError) as error:
        assert "flipped.npy" in str(error)
    else:
        assert array.file_bytes == len(data)
