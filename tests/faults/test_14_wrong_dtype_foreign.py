"""Fault 14: wrong dtype, byte order, version or magic of a foreign layout: an error, no guess."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from tokenreel import open_store
from tokenreel.errors import ConfigError, DamageError, FormatError, VocabularyError


def put_index(folder, *, magic=b"MMIDIDX\0\0", version=1, code=8, order="<"):
    head = struct.pack(f"{order}9sQBQQ", magic, version, code, 1, 2)
    index = head + struct.pack(f"{order}iqqq", 4, 0, 0, 1)
    (folder / "p.idx").write_bytes(index)
    (folder / "p.bin").write_bytes(bytes(8))
    return folder


def test_the_undamaged_pair_opens(tmp_path):
    assert open_store(put_index(tmp_path)).num_tokens == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"magic": b"TNTIDX\0\0\0"}, "wrong magic at byte 0"),
        ({"magic": b"mmididx\0\0"}, "wrong magic at byte 0"),
        ({"version": 0}, "unknown version at byte 9"),
        ({"version": 2}, "unknown version at byte 9"),
        ({"order": ">"}, "unknown version at byte 9"),
        ({"code": 0}, "unknown token dtype at byte 17"),
        ({"code": 6}, "float64"),
        ({"code": 7}, "float32"),
        ({"code": 255}, "unknown token dtype at byte 17"),
    ],
)
def test_a_megatron_header_that_is_wrong_names_the_byte(tmp_path, wrong, message):
    with pytest.raises(FormatError, match=rf"p\.idx: .*{message}"):
        open_store(put_index(tmp_path, **wrong))


@pytest.mark.parametrize("code", [1, 4, 5])
def test_a_megatron_dtype_of_another_width_is_damage(tmp_path, code):
    with pytest.raises(DamageError, match=r"p\.bin: the tokens are not what the index says"):
        open_store(put_index(tmp_path, code=code))


@pytest.mark.parametrize("dtype", [">u2", ">u4", ">i8", "f4", "c8", "S2", "M8[s]", "?", "u8"])
def test_npy_shards_of_a_dtype_that_holds_no_tokens_are_refused(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.zeros(4, dtype))
    with pytest.raises(FormatError, match=r"a\.npy: (unknown token dtype|the array is big-endian)"):
        open_store(tmp_path)


@pytest.mark.parametrize("declared", ["uint16-be", ">u2", "float16", "object", "token", 16, [2]])
def test_metadata_with_a_dtype_that_is_none_is_refused(tmp_path, declared):
    (tmp_path / "a.bin").write_bytes(bytes(8))
    (tmp_path / "meta.json").write_text(json.dumps({"dtype": declared}))
    with pytest.raises(FormatError, match=r"meta\.json: unknown token dtype"):
        open_store(tmp_path)


def test_uint16_tokens_read_as_uint32_show_against_the_vocabulary(tmp_path):
    np.arange(1, 1001, dtype="<u2").tofile(tmp_path / "a.bin")
    (tmp_path / "meta.json").write_text('{"dtype": "uint32", "vocab_size": 32000}')
    with pytest.raises(VocabularyError, match=r"a\.bin: .*uint32 \(dtype from meta\.json\)"):
        open_store(tmp_path)


def test_an_argument_cannot_contradict_a_header(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(4, "<u4"))
    with pytest.raises(ConfigError, match=r"a\.npy: .*expected uint32, got uint16"):
        open_store(tmp_path, dtype="uint16")
