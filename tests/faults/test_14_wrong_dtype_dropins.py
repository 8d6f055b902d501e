"""Fault 14 at contracts 000 and 003: a wrong dtype or header is an error, no guess."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dropin.making import config, put_files, put_split

from tokenreel.dropin import GPTDataLoader, GPTEpisodeDataLoader, MemoryMappedDataset
from tokenreel.errors import ConfigError, DamageError, FormatError, VocabularyError


@pytest.mark.parametrize("dtype", [">u2", ">u4", "f4", "S2", "?", "u8"])
def test_npy_files_of_a_dtype_that_holds_no_tokens_are_refused(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.zeros(8, dtype))
    with pytest.raises(FormatError, match=r"a\.npy: (unknown token dtype|the array is big-endian)"):
        MemoryMappedDataset(tmp_path, 4)


def test_an_array_that_is_not_flat_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 4), "<u2"))
    with pytest.raises(FormatError, match=r"a\.npy: the array is not flat"):
        MemoryMappedDataset(tmp_path, 4)


def test_files_of_different_dtypes_are_read_each_by_its_header(tmp_path):
    put_files(tmp_path, {"a.npy": range(8)}, dtype="<u2")
    put_files(tmp_path, {"b.npy": range(8, 16)}, dtype="<u4")
    dataset = MemoryMappedDataset(tmp_path, 4)
    assert [dataset[i]["input_ids"].tolist() for i in (1, 2)] == [[4, 5, 6], [8, 9, 10]]


def test_an_argument_cannot_contradict_a_header(tmp_path):
    put_files(tmp_path, {"a.npy": range(8)}, dtype="<u4")
    with pytest.raises(ConfigError, match=r"a\.npy: .*expected uint32, got uint16"):
        MemoryMappedDataset(tmp_path, 4, dtype="uint16")


def test_a_wrong_dtype_shows_against_the_vocabulary(tmp_path):
    put_files(tmp_path, {"train.bin": range(1, 1001)}, dtype="<u2")  # uint32 by its size
    (tmp_path / "meta.json").write_text('{"vocab_size": 32000}')
    with pytest.raises(VocabularyError, match=r"train\.bin: .*uint32 \(dtype from file size\)"):
        MemoryMappedDataset(tmp_path, 4, "*.bin")
    with pytest.raises(VocabularyError, match=r"train\.bin: .*uint32 \(dtype from file size\)"):
        GPTDataLoader(config(), None, tmp_path)


def test_tokens_of_episodes_that_are_no_whole_number_of_uint32_are_refused(tmp_path):
    put_split(tmp_path / "train", [[1, 2, 3]])
    (tmp_path / "train" / "tokens.bin").write_bytes(bytes(13))
    with pytest.raises(DamageError, match=r"tokens\.bin: the file ends at byte 13"):
        GPTEpisodeDataLoader(config(), None, tmp_path)
