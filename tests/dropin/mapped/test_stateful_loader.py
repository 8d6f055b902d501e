"""Contract 003's loader: batches, the state, and every place it can be resumed at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchdata.stateful_dataloader  # type: ignore[import-untyped]
from tests.dropin.making import put_files

from tokenreel.dropin import (
    DataConfig,
    DistributedSampler,
    MemoryMappedDataset,
    MixtureDataset,
    MixtureSampler,
    StatefulDataLoader,
)
from tokenreel.errors import ConfigError
from tokenreel.testing import check_resume


@pytest.fixture
def dataset(tmp_path: Path) -> MemoryMappedDataset:
    put_files(tmp_path / "a", {"a_0.npy": range(130), "a_1.npy": range(130, 260)})
    return MemoryMappedDataset(tmp_path / "a", 5)  # 52 samples


@pytest.fixture
def mixture(tmp_path: Path, dataset: MemoryMappedDataset) -> MixtureDataset:
    put_files(tmp_path / "b", {"b.npy": range(1000, 1150)})
    return MixtureDataset([dataset, MemoryMappedDataset(tmp_path / "b", 5)], ["a", "b"])


class Squares(torch.utils.data.Dataset):
    """A dataset that is not ours."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"square": torch.tensor(number * number), "name": str(number)}


class Epochs:
    """A loader as one stream over epochs, whose state goes through JSON."""

    def __init__(self, loader: StatefulDataLoader, epochs: int) -> None:
        self.loader, self.epochs = loader, epochs

    def __iter__(self) -> Iterator[Any]:
        while self.loader.state_dict()["epoch"] < self.epochs:
            for batch in self.loader:
                yield {
                    name: value.numpy() if isinstance(value, torch.Tensor) else value
                    for name, value in batch.items()
                }

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(json.dumps(self.loader.state_dict()))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)


def firsts(loader: Any) -> list[list[int]]:
    return [batch["input_ids"][:, 0].tolist() for batch in loader]


def test_an_epoch_is_every_full_batch_and_the_next_is_another(dataset):
    loader = StatefulDataLoader(dataset, 5)
    assert len(loader) == 10
    epochs = [firsts(loader) for _ in range(3)]
    for batches in epochs:
        assert [len(batch) for batch in batches] == [5] * 10
        shown = [token for batch in batches for token in batch]
        assert len(set(shown)) == 50 and set(shown) <= set(range(0, 260, 5))
    assert epochs[0] != epochs[1] != epochs[2]


def test_batches_are_what_torch_would_have_collated(dataset, mixture):
    for data, sampler in (
        (dataset, DistributedSampler(dataset, 1, 0, seed=2)),
        (mixture, MixtureSampler(mixture.cumulative_sizes, [1, 3], 1, 0, seed=2)),
    ):
        plain = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)
        expected = list(plain)
        batches = list(StatefulDataLoader(data, 4, sampler))
        assert len(batches) == len(expected) > 10
        for batch, collated in zip(batches, expected, strict=True):
            assert batch.keys() == collated.keys()
            for name, tensor in collated.items():
                assert torch.equal(batch[name], tensor) and batch[name].dtype == tensor.dtype


def test_a_mixture_says_of_which_dataset_a_sample_is(mixture):
    assert mixture.cumulative_sizes == [0, 52, 82] and mixture.dataset_names == ["a", "b"]
    assert mixture[51]["dataset_idx"] == 0 and mixture[52]["dataset_idx"] == 1
    sampler = MixtureSampler(mixture.cumulative_sizes, [1, 1], 1, 0)
    for batch in StatefulDataLoader(mixture, 4, sampler):
        assert batch["dataset_idx"].tolist() == [
            int(token >= 1000) for token in batch["input_ids"][:, 0]
        ]
    with pytest.raises(IndexError, match="no sample 82 of 82"):
        mixture[82]


def test_a_mixture_of_different_dtypes_is_gathered_at_once(tmp_path, dataset):
    put_files(tmp_path / "wide", {"w.npy": range(70_000, 70_100)}, dtype="<u4")
    wide = MemoryMappedDataset(tmp_path / "wide", 5)
    mixed = MixtureDataset([dataset, wide], ["a", "w"])
    assert mixed.makes_batches
    sampler = MixtureSampler(mixed.cumulative_sizes, [1, 1], 1, 0)
    plain = torch.utils.data.DataLoader(mixed, batch_size=4, sampler=sampler, drop_last=True)
    for batch, collated in zip(StatefulDataLoader(mixed, 4, sampler), list(plain), strict=True):
        assert batch["dataset_idx"].tolist() == collated["dataset_idx"].tolist()
        assert torch.equal(batch["input_ids"], collated["input_ids"])
        assert torch.equal(batch["labels"], collated["labels"])


def test_a_mixture_with_a_dataset_of_another_kind_takes_the_way_of_torch(dataset):
    class Doubled(MemoryMappedDataset):
        def __getitem__(self, idx: int) -> dict[str, torch.Tensor]:
            return {name: 2 * tensor for name, tensor in super().__getitem__(idx).items()}

    mixed = MixtureDataset([dataset, Doubled(dataset.data_dir, 5)], ["a", "b"])
    assert not mixed.makes_batches
    sampler = MixtureSampler(mixed.cumulative_sizes, [0, 1], 1, 0)
    batch = next(iter(StatefulDataLoader(mixed, 4, sampler)))
    assert batch["dataset_idx"].tolist() == [1] * 4 and not (batch["labels"] % 2).any()


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_a_mixture_needs_a_name_for_each(dataset, names):
    with pytest.raises(ConfigError, match="one name of its own for each"):
        MixtureDataset([dataset, dataset], names)


def test_the_state_has_the_keys_of_the_contract(dataset):
    loader = StatefulDataLoader(dataset, 5)
    stream = iter(loader)
    for _ in range(3):
        next(stream)
    state = loader.state_dict()
    assert set(state) == {"epoch", "batches_yielded", "sampler", "store"}
    assert (state["epoch"], state["batches_yielded"]) == (0, 3)
    assert state["sampler"]["samples_yielded"] == 15


def kinds(dataset: Any, mixture: Any) -> dict[str, Any]:
    weighed = mixture.cumulative_sizes
    return {
        "mapped": lambda: StatefulDataLoader(dataset, 7, DistributedSampler(dataset, 2, 1)),
        "mixture": lambda: StatefulDataLoader(
            mixture, 8, MixtureSampler(weighed, [1, 2], 1, 0, seed=5)
        ),
        "collated": lambda: StatefulDataLoader(
            dataset, 7, DistributedSampler(dataset, 1, 0), collate_fn=lambda items: items[0]
        ),
        "foreign": lambda: StatefulDataLoader(Squares(), 4),
        "foreign sampler": lambda: StatefulDataLoader(
            dataset, 9, torch.utils.data.SequentialSampler(range(52))
        ),
    }


@pytest.mark.parametrize("kind", ["mapped", "mixture", "collated", "foreign", "foreign sampler"])
def test_it_resumes_at_every_batch_at_epoch_ends_twice_and_after_a_load(dataset, mixture, kind):
    make = kinds(dataset, mixture)[kind]
    steps = 2 * len(make())
    check_resume(lambda: Epochs(make(), 3), steps=steps)


def test_workers_that_run_ahead_do_not_move_the_state(dataset):
    def make() -> StatefulDataLoader:
        config = DataConfig(num_workers=1, prefetch_factor=3)
        sampler = DistributedSampler(range(23), 1, 0)
        return StatefulDataLoader(Squares(), 4, sampler, config)

    whole = [batch["square"].tolist() for batch in make()]
    first = make()
    stream = iter(first)
    begun = [next(stream)["square"].tolist() for _ in range(2)]
    assert first.state_dict()["batches_yielded"] == 2
    resumed = make()
    resumed.load_state_dict(first.state_dict())
    rest = [batch["square"].tolist() for batch in resumed]
    assert begun + rest == whole and len(whole) == 5


def test_a_state_at_the_end_of_an_epoch_gives_no_batch_and_then_the_next_epoch(dataset):
    loader = StatefulDataLoader(dataset, 5)
    stream = iter(loader)
    for _ in range(10):
        next(stream)
    state = loader.state_dict()
    assert (state["epoch"], state["batches_yielded"]) == (0, 10)
    with pytest.raises(StopIteration):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches_yielded"]) == (1, 0)
    resumed = StatefulDataLoader(dataset, 5)
    resumed.load_state_dict(state)
    assert firsts(resumed) == []
    assert firsts(resumed) == firsts(loader)


def test_a_loop_that_is_broken_off_begins_the_epoch_again(dataset):
    loader = StatefulDataLoader(dataset, 5)
    whole = firsts(loader)
    again = StatefulDataLoader(dataset, 5)
    for _, _batch in zip(range(3), again, strict=False):
        pass
    assert firsts(again) == whole


def test_a_state_within_a_batch_of_another_size_is_refused(dataset):
    loader = StatefulDataLoader(dataset, 5)
    next(iter(loader))
    with pytest.raises(ConfigError) as caught:
        StatefulDataLoader(dataset, 4).load_state_dict(loader.state_dict())
    assert str(caught.value) == (
        "the state lies within a batch of this size and number of ranks (expected a multiple of 4 "
        "samples, got 5); resume with the same global batch, or one that divides it"
    )


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"epoch": -1}, "bad epoch in the state of the data loader"),
        ({"epoch": 0, "batches_yielded": 1.5}, "bad batches_yielded"),
        ({"epoch": 0, "batches_yielded": 11}, "the state lies behind the end of the epoch"),
    ],
)
def test_a_state_that_makes_no_sense_is_refused(dataset, state, message):
    with pytest.raises(ConfigError, match=message):
        StatefulDataLoader(dataset, 5).load_state_dict(state)


def test_weights_changed_between_batches_hold_for_the_next_and_survive_a_resume(mixture):
    def make() -> StatefulDataLoader:
        return StatefulDataLoader(
            mixture, 8, MixtureSampler(mixture.cumulative_sizes, [1, 0], 1, 0)
        )

    loader = make()
    stream = iter(loader)
    assert next(stream)["dataset_idx"].sum() == 0
    loader.sampler.update_weights([0, 1])
    assert next(stream)["dataset_idx"].sum() == 8
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [batch["input_ids"].tolist() for batch in stream]
    resumed = make()
    resumed.load_state_dict(state)
    assert [batch["input_ids"].tolist() for batch in resumed] == rest


@pytest.mark.parametrize("size", [0, -3])
def test_a_batch_size_that_is_none_is_refused(dataset, size):
    with pytest.raises(ConfigError, match="bad batch_size"):
        StatefulDataLoader(dataset, size)


def test_a_subclass_makes_its_own_samples(tmp_path):
    class Doubled(MemoryMappedDataset):
        def __getitem__(self, idx: int) -> dict[str, torch.Tensor]:
            sample = super().__getitem__(idx)
            return {"input_ids": sample["input_ids"] * 2}

        __getitems__ = None

    put_files(tmp_path, {"a.npy": range(100)})
    batch = next(iter(StatefulDataLoader(Doubled(tmp_path, 5), 4)))
    assert set(batch) == {"input_ids"} and not (batch["input_ids"] % 2).any()


def test_torchdata_resumes_with_our_dataset_and_sampler(dataset):
    def make() -> Any:
        sampler = DistributedSampler(dataset, 1, 0, seed=6)
        return torchdata.stateful_dataloader.StatefulDataLoader(
            dataset, batch_size=5, sampler=sampler, drop_last=True
        )

    whole = firsts(make())
    loader = make()
    stream = iter(loader)
    begun = [next(stream)["input_ids"][:, 0].tolist() for _ in range(4)]
    state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    assert begun + firsts(resumed) == whole


def test_closing_a_mixture_closes_its_datasets(mixture):
    mixture.close()
    with pytest.raises(ConfigError, match="the dataset is closed"):
        mixture[0]


def test_states_of_a_mixture_are_those_of_its_datasets(mixture):
    state = mixture.state_dict()
    assert state == {
        "dataset_0": {"epoch": 0, "total_samples": 52},
        "dataset_1": {"epoch": 0, "total_samples": 30},
    }
    mixture.load_state_dict({"dataset_1": {"epoch": 4}, "b": {"epoch": 9}})
    assert mixture.state_dict()["dataset_1"]["epoch"] == 4
    assert np.array_equal(mixture.cumulative_sizes, [0, 52, 82])
