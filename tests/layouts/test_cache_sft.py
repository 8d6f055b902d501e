"""Fine-tuning caches of contract 002."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import open_store
from tokenreel.errors import DamageError, FormatError

DOCUMENTS = [[1, 2], [3], [4, 5, 6]]
META = {"token_dtype": "uint16-le", "vocab_size": 1000, "train_examples": 3, "val_examples": 1}


def test_examples_end_where_the_next_begins(tmp_path, sft, texts):
    sft(tmp_path, {"train": DOCUMENTS, "val": [[7]]}, META)
    store = open_store(tmp_path)
    assert (store.layout, store.dtype_source) == ("cache-sft", "meta.json")
    assert (store.dtype, store.vocab_size) == (np.uint16, 1000)
    assert (texts(store), texts(store, "val")) == (DOCUMENTS, [[7]])
    assert store.metadata["train_examples"] == 3


def test_meta_json_may_be_missing(tmp_path, sft, texts):
    sft(tmp_path, {"train": DOCUMENTS}, None)
    store = open_store(tmp_path, mode="pread")
    assert store.dtype_source == "layout"
    assert texts(store) == DOCUMENTS


def test_an_end_mark_is_recognised_only_when_meta_json_counts_one_less(tmp_path, sft, texts):
    sft(tmp_path, {"train": DOCUMENTS}, {**META, "val_examples": 0})
    np.save(tmp_path / "train_idx.npy", np.array([0, 2, 3, 6]))
    assert texts(open_store(tmp_path)) == DOCUMENTS
    np.save(tmp_path / "train_idx.npy", np.array([0, 2, 3, 5]))
    with pytest.raises(DamageError, match=r"train_idx.npy.*expected 3, got 4"):
        open_store(tmp_path)


def test_an_end_mark_that_nobody_declares_is_an_empty_example_and_said(
    tmp_path, sft, texts, caplog
):
    sft(tmp_path, {"train": DOCUMENTS}, None)
    np.save(tmp_path / "train_idx.npy", np.array([0, 2, 3, 6]))
    with caplog.at_level(logging.WARNING):
        assert texts(open_store(tmp_path)) == [*DOCUMENTS, []]
    assert "the last example is empty" in caplog.text


@pytest.mark.parametrize("examples", [0, 1, 2, 4, 2**40])
def test_any_other_count_is_damage(tmp_path, sft, examples):
    sft(tmp_path, {"train": DOCUMENTS}, {**META, "val_examples": 0, "train_examples": examples})
    with pytest.raises(DamageError, match=r"meta\.json declares"):
        open_store(tmp_path)


def test_a_split_that_meta_json_declares_must_be_there(tmp_path, sft):
    sft(tmp_path, {"train": DOCUMENTS}, META)
    with pytest.raises(DamageError, match=r"val_tokens.bin: the file is missing"):
        open_store(tmp_path)


@pytest.mark.parametrize("lost", ["train_tokens.bin", "train_idx.npy"])
def test_half_a_split_is_damage(tmp_path, sft, lost):
    sft(tmp_path, {"train": DOCUMENTS}, None)
    (tmp_path / lost).unlink()
    with pytest.raises(DamageError, match=rf"{lost}: the file is missing"):
        open_store(tmp_path)


@pytest.mark.parametrize("dtype", ["int32", "uint64", "float64", ">i8"])
def test_offsets_are_int64_and_nothing_else(tmp_path, sft, dtype):
    sft(tmp_path, {"train": DOCUMENTS}, None)
    np.save(tmp_path / "train_idx.npy", np.array([0, 2, 3], dtype))
    with pytest.raises(FormatError, match=r"train_idx\.npy"):
        open_store(tmp_path)


def test_offsets_that_leave_tokens_out_are_damage(tmp_path, sft):
    sft(tmp_path, {"train": DOCUMENTS}, None)
    np.save(tmp_path / "train_idx.npy", np.array([1, 2, 3]))
    with pytest.raises(DamageError, match=r"a first offset of 0, got 1"):
        open_store(tmp_path)
    np.save(tmp_path / "train_idx.npy", np.empty(0, np.int64))
    with pytest.raises(DamageError, match="no offsets"):
        open_store(tmp_path)


def test_a_split_without_an_example_is_allowed_and_a_zero_byte_file_with_some_is_not(tmp_path, sft):
    sft(tmp_path, {"train": DOCUMENTS, "val": []}, {**META, "val_examples": 0})
    assert open_store(tmp_path)["val"].num_documents == 0
    (tmp_path / "train_tokens.bin").write_bytes(b"")
    with pytest.raises(DamageError, match=r"train_tokens.bin: the shard is empty"):
        open_store(tmp_path)


def test_totals_may_be_nested(tmp_path, sft):
    sft(tmp_path, {"train": DOCUMENTS}, {"totals": {"train_examples": 5}})
    with pytest.raises(DamageError, match="expected 5, got 3"):
        open_store(tmp_path)


@pytest.mark.parametrize("value", [-1, 1.5, True, "3", 2**63])
def test_a_count_that_is_none_is_refused(tmp_path, sft, value):
    sft(tmp_path, {"train": DOCUMENTS}, None)
    (tmp_path / "meta.json").write_text(json.dumps({"train_examples": value}))
    with pytest.raises(FormatError, match="wrong value of train_examples"):
        open_store(tmp_path)


@settings(max_examples=20, deadline=None)
@given(documents=st.lists(st.lists(st.integers(0, 65535), min_size=1), min_size=1))
def test_any_examples_come_back(tmp_path_factory, sft, texts, documents):
    folder = sft(tmp_path_factory.mktemp("sft"), {"train": documents}, None)
    assert texts(open_store(folder)) == documents
