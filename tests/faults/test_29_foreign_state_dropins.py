"""Fault 29 at contracts 000 and 003: a state of other data, settings or version is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.dropin.making import config, numbered_episodes, put_files, put_split

from tokenreel.dropin import (
    DistributedSampler,
    GPTDataLoader,
    GPTEpisodeDataLoader,
    MemoryMappedDataset,
    MixtureDataset,
    StatefulDataLoader,
)
from tokenreel.errors import ConfigError, MismatchError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put_split(tmp_path / "one" / "train", numbered_episodes([5] * 8))
    put_split(tmp_path / "other" / "train", numbered_episodes([5, 5, 5, 5, 5, 5, 4, 6]))
    np.arange(100, dtype="<u2").tofile(tmp_path / "one.bin")
    np.arange(1, 101, dtype="<u2").tofile(tmp_path / "other.bin")
    return tmp_path


def differing(loader: Any, state: dict[str, Any]) -> set[str]:
    with pytest.raises(MismatchError, match="the state belongs to another") as caught:
        loader.load_state_dict(state)
    return set(caught.value.differing)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"epoch_seed": 2}, "epoch_seed"),
        ({"epoch_shuffle": False}, "epoch_shuffle"),
        ({"epoch_drop_last": False}, "epoch_drop_last"),
        ({"episode_min_tokens": 3}, "episode_min_tokens"),
        ({"pad_token_id": 5}, "pad_token_id"),
        ({"block_size": 7}, "block_size"),
        ({"batch_sampling_mode": "random"}, "batch_sampling_mode"),
    ],
)
def test_a_state_of_other_settings_names_them(folder, settings, field):
    state = GPTEpisodeDataLoader(config(), None, folder / "one").state_dict()
    loader = GPTEpisodeDataLoader(config(**settings), None, folder / "one")
    assert differing(loader, state) == {field}


def test_a_state_of_another_folder_is_refused_and_of_a_moved_one_is_not(folder):
    state = GPTEpisodeDataLoader(config(), None, folder / "one").state_dict()
    assert differing(GPTEpisodeDataLoader(config(), None, folder / "other"), state) == {"store"}
    (folder / "one").rename(folder / "moved")
    GPTEpisodeDataLoader(config(), None, folder / "moved").load_state_dict(state)


def test_a_state_of_epochs_in_the_first_order_is_refused(folder):
    loader = GPTEpisodeDataLoader(config(), None, folder / "one")
    state = loader.state_dict()
    del state["order"]  # as it was before epochs were ordered by epoch_seed + epoch
    assert differing(loader, state) == {"order"}


def test_a_state_of_another_stream_is_refused(folder):
    options = {"dtype": "uint16"}
    state = GPTDataLoader(config(), None, folder / "one.bin", **options).state_dict()
    assert differing(GPTDataLoader(config(), None, folder / "other.bin", **options), state) == {
        "store"
    }
    longer = GPTDataLoader(config(block_size=9), None, folder / "one.bin", **options)
    assert differing(longer, state) == {"block_size"}


@pytest.mark.parametrize("version", [2, None, "1"])
def test_a_state_of_another_version_is_refused(folder, version):
    loaders = [
        GPTEpisodeDataLoader(config(), None, folder / "one"),
        GPTDataLoader(config(), None, folder / "one.bin", dtype="uint16"),
        DistributedSampler(range(9), 1, 0),
    ]
    for loader in loaders:
        with pytest.raises(ConfigError, match="unknown version of the state of the"):
            loader.load_state_dict({**loader.state_dict(), "version": version})


@pytest.mark.parametrize("place", [-1, 1.5, True, "3"])
def test_a_place_that_is_none_is_refused(folder, place):
    loader = GPTEpisodeDataLoader(config(), None, folder / "one")
    with pytest.raises(ConfigError, match="bad train in the state of the episode loader"):
        loader.load_state_dict({**loader.state_dict(), "rows": {"train": place}})


def test_a_loader_refuses_the_state_of_another_sampler(tmp_path):
    put_files(tmp_path, {"a.npy": range(100)})
    dataset = MemoryMappedDataset(tmp_path, 5)
    state = StatefulDataLoader(dataset, 4, DistributedSampler(dataset, 1, 0, seed=1)).state_dict()
    other = StatefulDataLoader(dataset, 4, DistributedSampler(dataset, 1, 0, seed=2))
    assert differing(other, state) == {"seed"}
    put_files(tmp_path / "b", {"a.npy": range(90)})
    shorter = MemoryMappedDataset(tmp_path / "b", 5)
    fewer = StatefulDataLoader(shorter, 4, DistributedSampler(shorter, 1, 0, seed=1))
    assert differing(fewer, {**state, "store": shorter.fingerprint}) == {"total_samples"}


def test_a_state_of_other_tokens_of_the_same_number_is_refused(tmp_path):
    datasets = [
        MemoryMappedDataset(put_files(tmp_path / name, {"a.npy": range(start, start + 100)}), 5)
        for name, start in {"one": 0, "other": 1}.items()
    ]
    mixtures = [MixtureDataset([dataset, dataset], ["a", "b"]) for dataset in datasets]
    for one, other in (datasets, mixtures):
        assert differing(StatefulDataLoader(other, 4), StatefulDataLoader(one, 4).state_dict()) == {
            "store"
        }
    (tmp_path / "one").rename(tmp_path / "moved")
    moved = MemoryMappedDataset(tmp_path / "moved", 5)
    StatefulDataLoader(moved, 4).load_state_dict(StatefulDataLoader(datasets[0], 4).state_dict())
