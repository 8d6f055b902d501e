"""Fault 26 at contracts 000 and 003: an empty result is an error, what is filtered is counted."""

from __future__ import annotations

import logging

import pytest
from tests.dropin.making import config, put_files, put_split

from tokenreel.dropin import (
    DistributedSampler,
    GPTDataLoader,
    GPTEpisodeDataLoader,
    MemoryMappedDataset,
    StatefulDataLoader,
)
from tokenreel.errors import ConfigError, DamageError, LayoutError


def test_episodes_that_are_all_too_short_are_an_error(tmp_path):
    put_split(tmp_path / "train", [[1], [], [2]])
    with pytest.raises(ConfigError) as caught:
        GPTEpisodeDataLoader(config(), None, tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'train' / 'tokens.bin'}: no document is long enough, so there are no rows "
        "(expected one of >= 2 tokens, got 3 documents without)"
    )


def test_no_episode_at_all_is_an_error(tmp_path):
    put_split(tmp_path / "train", [[1, 2]])
    (tmp_path / "train" / "episodes.idx").write_bytes(b"")
    with pytest.raises(ConfigError, match="no document is long enough"):
        GPTEpisodeDataLoader(config(), None, tmp_path)
    with pytest.raises(LayoutError, match="not an episode folder"):
        GPTEpisodeDataLoader(config(), None, tmp_path / "nowhere")


def test_an_episode_in_which_nothing_is_trained_is_shown_as_the_contract_says(tmp_path, caplog):
    caplog.set_level(logging.INFO, "tokenreel")
    put_split(tmp_path / "train", [[1, 2], [3], [4, 5, 6]], [[0, 0], [1], [0, 1, 1]])
    loader = GPTEpisodeDataLoader(config(batch_size=2), None, tmp_path, True, epoch_shuffle=False)
    _, _, mask = loader.get_batch()
    assert mask.sum(dim=1).tolist() == [0, 2]
    assert "episodes=2 filtered=1" in caplog.messages[0]


def test_files_without_a_whole_sample_are_said_and_have_none(tmp_path, caplog):
    put_files(tmp_path, {"a.npy": range(5), "b.npy": range(4)})
    assert len(MemoryMappedDataset(tmp_path, 6)) == 0
    assert caplog.messages == [f"{tmp_path}: no file has 6 tokens, so there is no sample"]


def test_an_empty_file_has_no_sample_and_is_no_training_data(tmp_path):
    put_files(tmp_path, {"a.bin": [], "b.bin": range(9)})
    assert len(MemoryMappedDataset(tmp_path, 4, "*.bin")) == 2
    (tmp_path / "a.bin").rename(tmp_path / "train.bin")
    (tmp_path / "b.bin").unlink()
    with pytest.raises(DamageError, match=r"train\.bin: the shard is empty"):
        GPTDataLoader(config(), None, tmp_path)


def test_an_epoch_without_a_full_batch_is_refused_at_start(tmp_path):
    put_files(tmp_path, {"a.npy": range(50)})
    dataset = MemoryMappedDataset(tmp_path, 5)
    with pytest.raises(ConfigError) as caught:
        StatefulDataLoader(dataset, 4, DistributedSampler(dataset, 3, 0))
    assert str(caught.value) == (
        "an epoch has no full batch (expected >= 4 samples for each rank, got 3); choose a smaller "
        "batch_size"
    )
