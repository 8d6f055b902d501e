"""Flat shards of contract 003."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import open_store
from tokenreel.errors import ConfigError, DamageError, FormatError, VocabularyError

TATM = """\
name: tokenized
dataset_path: /somewhere/else/tokens
description: Tokenized dataset created using tatm
date_downloaded: ''
download_source: Tokenized by tatm
data_content: text
content_field: NA
corpuses: []
tokenized_info:
  tokenizer: t5-base
  file_prefix: /somewhere/else/tokens/tokenized
  dtype: uint16
  file_extension: bin
  vocab_size: 32100
  tatm_version: 0.2.0
  tokenizers_version: 0.19.1
"""


def put(path, tokens, dtype="uint16"):
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.array(tokens, dtype)
    if path.suffix == ".npy":
        np.save(path, array)
    else:
        array.tofile(path)


def test_npy_shards_in_natural_order_without_a_copy(tmp_path):
    for number in (10, 2, 1):
        put(tmp_path / f"part_{number}.npy", [number] * 3, "uint32")
    store = open_store(tmp_path)
    assert (store.layout, list(store)) == ("flat", ["train"])
    assert (store.dtype, store.dtype_source) == (np.uint32, "part_1.npy")
    assert store["train"].read(0, 9).tolist() == [1, 1, 1, 2, 2, 2, 10, 10, 10]
    assert not store["train"].shards[0].tokens.flags.owndata


def test_a_folder_as_tatm_writes_it(tmp_path):
    put(tmp_path / "tokenized_10.bin", [3, 32099])
    put(tmp_path / "tokenized_9.bin", [1, 2])
    put(tmp_path / "other_0.bin", [7, 7])
    (tmp_path / "metadata.yaml").write_text(TATM)
    (tmp_path / "tokenizer.json").write_text("{}")
    store = open_store(tmp_path)
    assert (store.dtype, store.dtype_source) == (np.uint16, "metadata.yaml")
    assert (store.vocab_size, store.tokenizer) == (32100, {"name": "t5-base"})
    assert store["train"].read(0, 4).tolist() == [1, 2, 3, 32099]
    assert store.metadata["name"] == "tokenized"


def test_a_prefix_that_no_file_has_is_an_error_and_a_pattern_the_way_out(tmp_path):
    put(tmp_path / "renamed_0.bin", [1, 2])
    (tmp_path / "metadata.yaml").write_text(TATM)
    with pytest.raises(FormatError, match=r"expected tokenized\*\.bin, got renamed_0\.bin"):
        open_store(tmp_path)
    assert open_store(tmp_path, file_pattern="*.bin").num_tokens == 2


def test_splits_lie_in_folders(tmp_path):
    put(tmp_path / "train" / "a_0.npy", [1])
    put(tmp_path / "validation" / "a_0.npy", [2])
    store = open_store(tmp_path)
    assert list(store) == ["train", "validation"]
    assert store["validation"].read(0, 1).tolist() == [2]


def test_files_at_the_root_and_in_train_are_refused(tmp_path):
    put(tmp_path / "a.npy", [1])
    put(tmp_path / "train" / "a.npy", [1])
    with pytest.raises(FormatError, match="both here and in train/"):
        open_store(tmp_path)


def test_one_npy_file_is_a_store(tmp_path):
    put(tmp_path / "a.npy", [1, 2])
    put(tmp_path / "b.npy", [3])
    assert open_store(tmp_path / "a.npy")["train"].read(0, 2).tolist() == [1, 2]


def test_npy_beside_bin_must_be_chosen(tmp_path):
    put(tmp_path / "a.npy", [1, 2])
    put(tmp_path / "b.bin", [3, 4])
    with pytest.raises(FormatError, match=r'both \.npy and \.bin.*file_pattern="\*\.npy"'):
        open_store(tmp_path)
    assert open_store(tmp_path, file_pattern="*.npy")["train"].read(0, 2).tolist() == [1, 2]
    store = open_store(tmp_path, file_pattern="*.bin", dtype="uint16")
    assert store["train"].read(0, 2).tolist() == [3, 4]
    (tmp_path / "meta.json").write_text('{"dtype": "uint16", "file_extension": "bin"}')
    assert open_store(tmp_path)["train"].read(0, 2).tolist() == [3, 4]


@pytest.mark.parametrize("pattern", ["*.txt", "nothing*.npy", "sub/*.npy"])
def test_a_pattern_that_matches_nothing_is_an_error(tmp_path, pattern):
    put(tmp_path / "a.npy", [1])
    with pytest.raises(ConfigError, match="matches file_pattern"):
        open_store(tmp_path, file_pattern=pattern)


@pytest.mark.parametrize("pattern", ["/etc/*.npy", "../*.npy", "a/../../*.npy"])
def test_a_pattern_that_leads_out_is_refused(tmp_path, pattern):
    put(tmp_path / "a.npy", [1])
    with pytest.raises(ConfigError, match="leads out"):
        open_store(tmp_path, file_pattern=pattern)


def test_a_pattern_may_name_a_folder(tmp_path):
    put(tmp_path / "a.npy", [1])
    put(tmp_path / "deep" / "b_10.npy", [10])
    put(tmp_path / "deep" / "b_9.npy", [9])
    store = open_store(tmp_path, file_pattern="deep/*.npy")
    assert store["train"].read(0, 2).tolist() == [9, 10]


@pytest.mark.parametrize(
    ("arguments", "meta", "expected"),
    [
        ({"dtype": "uint16"}, '{"dtype": "uint32"}', ("uint16", "argument")),
        ({}, '{"token_dtype": "uint16-le"}', ("uint16", "meta.json")),
        ({}, None, ("uint32", "file size")),
    ],
)
def test_the_dtype_rule(tmp_path, caplog, arguments, meta, expected):
    put(tmp_path / "a.bin", [1, 0, 2, 0])
    if meta:
        (tmp_path / "meta.json").write_text(meta)
    with caplog.at_level(logging.WARNING):
        store = open_store(tmp_path, **arguments)
    assert (store.dtype.name, store.dtype_source) == expected
    assert ("nothing declares" in caplog.text) == (expected[1] == "file size")


def test_an_inferred_dtype_is_held_against_the_vocabulary(tmp_path):
    put(tmp_path / "a.bin", [1, 2, 3, 4])
    with pytest.raises(VocabularyError, match=r"uint32 \(dtype from file size\)"):
        open_store(tmp_path, vocab_size=50257)


def test_header_and_metadata_that_disagree_are_an_error_unless_the_argument_decides(tmp_path):
    put(tmp_path / "a.npy", [1], "uint32")
    (tmp_path / "meta.json").write_text('{"dtype": "uint16"}')
    with pytest.raises(FormatError, match=r"uint16 as in meta\.json, got uint32"):
        open_store(tmp_path)
    assert open_store(tmp_path, dtype="uint32").dtype == np.uint32
    with pytest.raises(ConfigError, match="header declares another dtype"):
        open_store(tmp_path, dtype="uint16")


def test_shards_of_different_dtypes_are_refused(tmp_path):
    put(tmp_path / "a.npy", [1], "uint32")
    put(tmp_path / "b.npy", [1], "uint16")
    with pytest.raises(FormatError, match=r"b\.npy.*one dtype.*uint32 as in a\.npy, got uint16"):
        open_store(tmp_path)


@pytest.mark.parametrize("size", [0, 3])
def test_a_bin_of_a_wrong_size_is_damage(tmp_path, size):
    put(tmp_path / "a.bin", [1, 2])
    (tmp_path / "b.bin").write_bytes(bytes(size))
    with pytest.raises(DamageError, match=r"b\.bin"):
        open_store(tmp_path, dtype="uint16")


def test_an_empty_npy_and_a_broken_link_are_damage(tmp_path):
    put(tmp_path / "a.npy", [])
    with pytest.raises(DamageError, match=r"a\.npy: the shard is empty"):
        open_store(tmp_path)
    put(tmp_path / "a.npy", [1])
    (tmp_path / "b.npy").symlink_to(tmp_path / "gone.npy")
    with pytest.raises(DamageError, match=r"b\.npy: the link leads nowhere"):
        open_store(tmp_path)


def test_the_fingerprint_follows_content_and_not_the_place(tmp_path):
    put(tmp_path / "one" / "a.npy", [1, 2])
    put(tmp_path / "two" / "a.npy", [1, 2])
    put(tmp_path / "three" / "a.npy", [1, 3])
    one, two, three = (open_store(tmp_path / n).fingerprint for n in ("one", "two", "three"))
    assert one == two
    assert one != three
    assert open_store(tmp_path / "one", eos_id=1).fingerprint != one


@settings(max_examples=30, deadline=None)
@given(
    shards=st.lists(st.lists(st.integers(0, 999), min_size=1), min_size=1, max_size=4),
    suffix=st.sampled_from([".npy", ".bin"]),
    dtype=st.sampled_from(["uint16", "uint32", "int32", "int64"]),
)
def test_any_tokens_come_back(tmp_path_factory, shards, suffix, dtype):
    folder = tmp_path_factory.mktemp("flat")
    for number, tokens in enumerate(shards):
        put(folder / f"t_{number}{suffix}", tokens, dtype)
    store = open_store(folder, dtype=dtype, vocab_size=1000)
    everything = [token for tokens in shards for token in tokens]
    assert store["train"].read(0, store.num_tokens).tolist() == everything


@settings(max_examples=30, deadline=None)
@given(shards=st.lists(st.lists(st.integers(0, 3), min_size=1), min_size=1, max_size=3))
def test_documents_end_with_their_end_token_and_never_cross_shards(tmp_path_factory, texts, shards):
    folder = tmp_path_factory.mktemp("flat")
    expected = []
    for number, tokens in enumerate(shards):
        put(folder / f"t_{number}.npy", tokens)
        documents = [[]]
        for token in tokens:
            documents[-1].append(token)
            if token == 0:
                documents.append([])
        expected += [document for document in documents if document]
    assert texts(open_store(folder, eos_id=0)) == expected
    assert texts(open_store(folder, eos_id=0, mode="pread")) == expected
