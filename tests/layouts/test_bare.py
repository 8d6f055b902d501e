"""A bare train.bin and val.bin, as nanoGPT writes them."""

from __future__ import annotations

import numpy as np
import pytest

from tokenreel import open_store
from tokenreel.errors import ConfigError, DamageError, FormatError


def test_train_and_val_are_splits_and_the_pickle_beside_them_is_not_opened(tmp_path):
    np.array([1, 2, 3], "<u2").tofile(tmp_path / "train.bin")
    np.array([4], "<u2").tofile(tmp_path / "val.bin")
    (tmp_path / "meta.pkl").symlink_to("/dev/full")  # opening and loading it would fail
    store = open_store(tmp_path)
    assert (store.layout, list(store)) == ("bare", ["train", "val"])
    assert (store.dtype, store.dtype_source) == (np.uint16, "file size")
    assert store["train"].read(0, 3).tolist() == [1, 2, 3]


def test_one_bin_file_is_a_store(tmp_path, texts):
    np.array([1, 0, 2], "<u4").tofile(tmp_path / "tokens.bin")
    store = open_store(tmp_path / "tokens.bin", dtype="uint32", eos_id=0)
    assert store.layout == "bare"
    assert texts(store) == [[1, 0], [2]]


def test_a_bin_beside_train_bin_is_not_lost(tmp_path):
    for name in ("train.bin", "shard_1.bin"):
        np.array([1], "<u4").tofile(tmp_path / name)
    store = open_store(tmp_path, dtype="uint32")
    assert (store.layout, store.num_tokens) == ("flat", 2)


@pytest.mark.parametrize("size", [0, 3])
def test_a_file_of_a_wrong_size_is_an_error(tmp_path, size):
    (tmp_path / "train.bin").write_bytes(bytes(size))
    with pytest.raises((DamageError, FormatError), match=r"train\.bin"):
        open_store(tmp_path)


def test_a_pattern_is_not_ignored(tmp_path):
    np.array([1], "<u4").tofile(tmp_path / "train.bin")
    with pytest.raises(ConfigError, match="file_pattern"):
        open_store(tmp_path, file_pattern="*.bin")
