"""Fault 17 at contracts 000 and 003: files that shrink are found when an epoch begins."""

from __future__ import annotations

import pytest
from tests.dropin.making import config, numbered_episodes, put_files, put_split

from tokenreel.dropin import (
    GPTDataLoader,
    GPTEpisodeDataLoader,
    MemoryMappedDataset,
    MixtureDataset,
    StatefulDataLoader,
)
from tokenreel.errors import DamageError


def test_episodes_are_checked_at_every_epoch(tmp_path):
    put_split(tmp_path / "train", numbered_episodes([5] * 8))
    loader = GPTEpisodeDataLoader(config(), None, tmp_path)
    loader.get_batch()
    with (tmp_path / "train" / "tokens.bin").open("r+b") as file:
        file.truncate(80)
    loader.get_batch()  # of the same epoch, and of what is still in memory
    with pytest.raises(DamageError, match=r"tokens\.bin: the file is too short"):
        loader.get_batch()


@pytest.mark.parametrize("mixed", [False, True])
def test_mapped_files_are_checked_at_every_epoch(tmp_path, mixed):
    put_files(tmp_path, {"a.npy": range(100)})
    dataset = MemoryMappedDataset(tmp_path, 5)
    data = MixtureDataset([dataset], ["a"]) if mixed else dataset
    loader = StatefulDataLoader(data, 4)
    assert len(list(loader)) == 5
    with (tmp_path / "a.npy").open("r+b") as file:
        file.truncate(300)
    with pytest.raises(DamageError, match=r"a\.npy: the file is too short"):
        iter(loader)


def test_a_stream_is_checked_now_and_then(tmp_path):
    put_files(tmp_path, {"train.bin": range(50)})
    loader = GPTDataLoader(config(), None, tmp_path, dtype="uint16")
    loader.get_batch()
    with (tmp_path / "train.bin").open("r+b") as file:
        file.truncate(60)
    with pytest.raises(DamageError, match=r"train\.bin: the file is too short"):
        for _ in range(12):
            loader.get_batch()
