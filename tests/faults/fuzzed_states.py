"""States of feeds, streams and drop-ins, to be damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.dropin.making import PAD, numbered_episodes, put_split
from tests.dropin.making import config as loader_config
from tests.faults.damaging import damaged_json
from tests.faults.fuzzed import Maker, Target
from tests.faults.fuzzed_stores import feed_of
from tests.store.building import build_full
from tests.stream.making import batches_of, config_of, texts_of, write_texts

from tokenreel.dropin import (
    DistributedSampler,
    GPTDataLoader,
    GPTEpisodeDataLoader,
    MemoryMappedDataset,
    MixtureSampler,
    StatefulDataLoader,
)


def feed_state(folder: Path) -> Target:
    store = build_full(folder / "s")
    feed = feed_of(store)
    feed.batch(0)

    def use(state: Any) -> None:
        resumed = feed_of(store)
        resumed.load_state_dict(state)
        resumed.batch(resumed.state_dict()["step"])

    return Target(inputs=damaged_json(json.loads(json.dumps(feed.state_dict()))), use=use)


def stream_state(folder: Path) -> Target:
    config = config_of(write_texts(folder / "a.jsonl", texts_of(20)))
    stream = batches_of(config)
    next(stream)

    def use(state: Any) -> None:
        resumed = batches_of(config)
        resumed.set_state(state)
        next(resumed)

    return Target(inputs=damaged_json(json.loads(json.dumps(stream.get_state()))), use=use)


def dropin_target(make: Callable[[], Any], go_on: Callable[[Any], object]) -> Target:
    """Damage the state of a face of another project, load it and go on."""

    def use(state: Any) -> None:
        resumed = make()
        resumed.load_state_dict(state)
        go_on(resumed)

    begun = make()
    go_on(begun)
    return Target(inputs=damaged_json(json.loads(json.dumps(begun.state_dict()))), use=use)


def sampler_state(folder: Path) -> Target:
    return dropin_target(lambda: DistributedSampler(range(10), num_replicas=1, rank=0), list)


def mixture_sampler_state(folder: Path) -> Target:
    def go_on(sampler: MixtureSampler) -> None:
        samples = iter(sampler)
        next(samples)
        sampler.update_weights([1.0, 3.0])
        next(samples)

    return dropin_target(lambda: MixtureSampler([0, 6, 10], [1, 2], num_replicas=1, rank=0), go_on)


def stateful_loader_state(folder: Path) -> Target:
    np.save(folder / "a.npy", np.arange(60, dtype="<u2"))
    dataset = MemoryMappedDataset(str(folder), 4)
    return dropin_target(lambda: StatefulDataLoader(dataset, 2), lambda loader: next(iter(loader)))


def episode_loader_state(folder: Path) -> Target:
    place = put_split(folder / "e" / "train", numbered_episodes([3, 4, 5, 6]), None).parent
    return dropin_target(
        lambda: GPTEpisodeDataLoader(loader_config(pad_token_id=PAD), None, place, False),
        lambda loader: loader.get_batch(),
    )


def token_loader_state(folder: Path) -> Target:
    np.save(folder / "a.npy", np.arange(60, dtype="<u2"))
    return dropin_target(
        lambda: GPTDataLoader(loader_config(), None, folder), lambda loader: loader.get_batch()
    )


PARSERS: tuple[Maker, ...] = (
    feed_state,
    stream_state,
    sampler_state,
    mixture_sampler_state,
    stateful_loader_state,
    episode_loader_state,
    token_loader_state,
)
