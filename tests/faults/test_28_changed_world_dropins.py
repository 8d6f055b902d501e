"""Fault 28 at contract 003: ranks and batch size change on the way, the global batches do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.dropin.making import put_files

from tokenreel.dropin import (
    DistributedSampler,
    MemoryMappedDataset,
    MixtureDataset,
    MixtureSampler,
    StatefulDataLoader,
)

GLOBAL_BATCH = 12


@pytest.fixture
def dataset(tmp_path: Path) -> MemoryMappedDataset:
    put_files(tmp_path / "a", {"a.npy": range(260)})
    return MemoryMappedDataset(tmp_path / "a", 5)  # 52 samples: 4 global batches an epoch


def make(dataset: Any, world_size: int, state: dict[str, Any] | None) -> list[StatefulDataLoader]:
    loaders = []
    for rank in range(world_size):
        sampler: Any = DistributedSampler(dataset, world_size, rank, seed=9)
        if isinstance(dataset, MixtureDataset):
            sampler = MixtureSampler(dataset.cumulative_sizes, [1, 2], world_size, rank, seed=9)
        loader = StatefulDataLoader(dataset, GLOBAL_BATCH // world_size, sampler)
        if state is not None:
            loader.load_state_dict(state)
        loaders.append(loader)
    return loaders


def step(loaders: list[StatefulDataLoader]) -> list[int]:
    """Return the samples of the next global batch, in no order, through epochs."""
    shown = []
    for loader in loaders:
        batch = next(loader, None)
        if batch is None:
            iter(loader)
            batch = next(loader)
        shown += batch["input_ids"][:, 0].tolist()
    return sorted(shown)


@pytest.mark.parametrize("mixed", [False, True])
def test_ranks_and_batch_size_may_change_at_every_step(dataset, mixed):
    data: Any = MixtureDataset([dataset, dataset], ["a", "b"]) if mixed else dataset
    whole = make(data, 1, None)
    iter(whole[0])
    expected = [step(whole) for _ in range(11)]
    state, shown = None, []
    for world_size in (4, 2, 3, 1, 6, 12, 4, 3, 2, 1, 4):
        loaders = make(data, world_size, state)
        for loader in loaders:
            iter(loader)
        shown.append(step(loaders))
        states = [json.loads(json.dumps(loader.state_dict())) for loader in loaders]
        assert len({json.dumps({**item["sampler"], "rank": 0}) for item in states}) == 1
        state = states[-1]
    assert shown == expected
