"""Megatron pairs, written byte by byte from the description of the format."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import open_store
from tokenreel.errors import ConfigError, DamageError, FormatError, MissingFileError
from tokenreel.layouts.megatron_index import SequenceRanges

DOCUMENTS = [[[1, 2], [3]], [[4, 5, 6]], [[]], [[7]]]
FLAT = [[1, 2, 3], [4, 5, 6], [], [7]]


@pytest.mark.parametrize("name", ["", "pair", "pair.idx", "pair.bin"])
def test_opens_by_folder_prefix_and_either_file(tmp_path, megatron, texts, name):
    megatron(tmp_path / "pair", DOCUMENTS)
    store = open_store(tmp_path / name if name else tmp_path)
    assert store.layout == "megatron"
    assert texts(store) == FLAT
    assert store.dtype == np.uint16
    assert store.dtype_source == "pair.idx"


@pytest.mark.parametrize("code,kind", [(1, "B"), (2, "b"), (3, "h"), (4, "i"), (5, "q"), (8, "H")])
@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_reads_the_dtype_of_the_header(tmp_path, megatron, texts, code, kind, mode):
    megatron(tmp_path / "pair", DOCUMENTS, code=code, kind=kind)
    store = open_store(tmp_path, mode=mode)
    assert store.dtype.itemsize == struct.calcsize(kind)
    assert texts(store) == FLAT


def test_pairs_of_a_folder_are_shards_in_natural_order(tmp_path, megatron, texts):
    for number in (10, 2, 1):
        megatron(tmp_path / f"web_{number}", [[[number]]])
    assert texts(open_store(tmp_path)) == [[1], [2], [10]]


def test_pairs_named_like_splits_are_splits(tmp_path, megatron, texts):
    megatron(tmp_path / "val", [[[9]]])
    megatron(tmp_path / "train", [[[1]]])
    store = open_store(tmp_path)
    assert list(store) == ["train", "val"]
    assert texts(store, "val") == [[9]]


def test_a_prefix_with_dots_is_not_cut(tmp_path, megatron, texts):
    megatron(tmp_path / "corpus.v1_text", DOCUMENTS)
    assert texts(open_store(tmp_path / "corpus.v1_text")) == FLAT


def test_modes_behind_the_index_are_allowed(tmp_path, megatron, texts):
    megatron(tmp_path / "pair", DOCUMENTS, modes=bytes(5))
    assert texts(open_store(tmp_path)) == FLAT


def test_the_index_is_not_copied(tmp_path, megatron):
    megatron(tmp_path / "pair", DOCUMENTS)
    index = open_store(tmp_path)["train"].shards[0].documents
    assert isinstance(index, SequenceRanges)
    assert not any(a.flags.owndata for a in (index.lengths, index.pointers, index.documents))


def edit(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("offset", "data", "kind", "message"),
    [
        (0, b"TNTIDX\x00\x00", FormatError, "wrong magic at byte 0"),
        (9, struct.pack("<Q", 2), FormatError, "unknown version at byte 9"),
        (17, b"\x06", FormatError, r"dtype at byte 17.*float64"),
        (17, b"\x07", FormatError, r"dtype at byte 17.*float32"),
        (17, b"\x09", FormatError, "dtype at byte 17"),
        (17, b"\x04", DamageError, "tokens are not what the index says"),
        (18, struct.pack("<Q", 2**63), DamageError, "not the file's size"),
        (26, struct.pack("<Q", 2**63), DamageError, "not the file's size"),
        (26, struct.pack("<Q", 0), DamageError, "not the file's size"),
        (34, struct.pack("<i", -2), DamageError, "sequence 0"),
        (34 + 5 * 4 + 8, struct.pack("<q", 2), DamageError, "sequence 1"),
        (34 + 5 * 12 + 8, struct.pack("<q", -1), DamageError, "document entry 1"),
        (34 + 5 * 12 + 8, struct.pack("<q", 2**62), DamageError, "document entry 1"),
        (34 + 5 * 12 + 4 * 8, struct.pack("<q", 4), DamageError, "do not cover"),
    ],
)
def test_a_damaged_index_names_what_is_wrong(tmp_path, megatron, offset, data, kind, message):
    prefix = megatron(tmp_path / "pair", DOCUMENTS)
    edit(tmp_path / "pair.idx", offset, data)
    with pytest.raises(kind, match=message) as caught:
        open_store(prefix)
    assert "pair." in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["pair.bin", "pair.idx"])
@pytest.mark.parametrize("change", [-1, 1])
def test_one_byte_more_or_less_is_damage(tmp_path, megatron, name, change):
    megatron(tmp_path / "pair", DOCUMENTS)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[:-1] if change < 0 else data + b"\0")
    with pytest.raises(DamageError, match=name):
        open_store(tmp_path)


def test_half_a_pair_is_damage_not_another_layout(tmp_path, megatron):
    megatron(tmp_path / "a", DOCUMENTS)
    megatron(tmp_path / "b", DOCUMENTS)
    (tmp_path / "b.bin").unlink()
    with pytest.raises(MissingFileError, match=r"b\.bin.*missing"):
        open_store(tmp_path)
    (tmp_path / "b.bin").touch()
    with pytest.raises(DamageError, match=r"b\.bin: the tokens.*got 0 bytes") as caught:
        open_store(tmp_path)
    assert not isinstance(caught.value, MissingFileError)
    megatron(tmp_path / "b", DOCUMENTS)
    (tmp_path / "b.idx").unlink()
    with pytest.raises(DamageError, match=r"b\.idx.*cannot be read"):
        open_store(tmp_path)


def test_pairs_of_different_dtypes_are_refused(tmp_path, megatron):
    megatron(tmp_path / "a", DOCUMENTS)
    megatron(tmp_path / "b", DOCUMENTS, code=4, kind="i")
    with pytest.raises(FormatError, match="one dtype"):
        open_store(tmp_path)


def test_an_argument_may_change_the_sign_but_not_the_width(tmp_path, megatron):
    megatron(tmp_path / "a", [[[40000]]], code=3, kind="H")
    assert open_store(tmp_path, dtype="uint16")["train"].read(0, 1).tolist() == [40000]
    with pytest.raises(ConfigError, match=r"header declares.*int16.*uint32"):
        open_store(tmp_path, dtype="uint32")


@settings(max_examples=20, deadline=None)
@given(
    documents=st.lists(
        st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=4), max_size=3), max_size=6
    )
)
def test_any_documents_come_back(tmp_path_factory, megatron, texts, documents):
    folder = tmp_path_factory.mktemp("pair")
    megatron(folder / "p", documents, code=4, kind="i")
    expected = [[token for sequence in document for token in sequence] for document in documents]
    assert texts(open_store(folder)) == expected
