"""Contract 003's samplers: partition, order, laziness, state."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.dropin import DistributedSampler, MixtureSampler
from tokenreel.errors import ConfigError, MismatchError


def make(total: int, world_size: int = 1, rank: int = 0, **options: Any) -> DistributedSampler:
    return DistributedSampler(range(total), world_size, rank, **options)


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(1, 60),
    world_size=st.integers(1, 7),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_ranks_partition_as_torchs_sampler_does(total, world_size, shuffle, drop_last):
    if drop_last and total < world_size:
        return
    ranks = [
        list(make(total, world_size, rank, shuffle=shuffle, drop_last=drop_last))
        for rank in range(world_size)
    ]
    theirs = [
        torch.utils.data.DistributedSampler(
            range(total),
            world_size,
            rank,
            shuffle=False,
            drop_last=drop_last and total >= world_size,
        )
        for rank in range(world_size)
    ]
    expected_counts = total // world_size if drop_last else -(-total // world_size)
    assert {len(rank) for rank in ranks} == {expected_counts}
    # torch keeps a multiple of the world size too, but rounds up once more.
    if not drop_last or total % world_size == 0:
        assert [len(rank) for rank in ranks] == [len(their) for their in theirs]
    if not shuffle and (not drop_last or total % world_size == 0):
        assert ranks == [list(their) for their in theirs]
    shown = Counter(sample for rank in ranks for sample in rank)
    assert set(shown) <= set(range(total))
    if drop_last:
        assert max(shown.values()) == 1 and total - len(shown) < world_size
    else:
        assert len(shown) == total
        assert sum(shown.values()) - total < world_size


def test_epochs_differ_seeds_are_not_added_and_the_same_is_the_same():
    def order(seed: int, epoch: int) -> list[int]:
        sampler = make(100, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(1, 1) == order(1, 1)
    assert sorted(order(1, 1)) == list(range(100))
    assert len({tuple(order(seed, epoch)) for seed, epoch in [(1, 1), (2, 0), (1, 0), (0, 2)]}) == 4


def test_the_global_order_does_not_depend_on_the_number_of_ranks():
    whole = list(make(96, seed=3))
    for world_size in (2, 3, 4, 8):
        ranks = [list(make(96, world_size, rank, seed=3)) for rank in range(world_size)]
        assert [sample for step in zip(*ranks, strict=True) for sample in step] == whole


def test_a_skip_holds_once():
    sampler = make(20, seed=1)
    whole = list(sampler)
    sampler.set_skip(7)
    assert list(sampler) == whole[7:]
    assert list(sampler) == whole
    with pytest.raises(ConfigError, match="bad skip"):
        sampler.set_skip(-1)


def test_a_thousand_million_samples_take_no_time_and_no_memory():
    list(islice(make(1000), 1))  # imports and kernels are there
    tracemalloc.start()
    try:
        begin = time.perf_counter()
        sampler = make(10**9, 8, 3)
        mixture = MixtureSampler([0, 10**9, 3 * 10**9], [1.0, 2.0], 8, 3)
        made = time.perf_counter() - begin
        sampler.set_skip(10**8)
        first = next(iter(sampler)), next(iter(mixture))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made < 0.010
    assert peak < 10 * 2**20
    assert len(sampler) == 125_000_000 and len(mixture) == 375_000_000
    assert 0 <= first[0] < 10**9 and 0 <= first[1] < 3 * 10**9


def test_batches_are_the_samples_in_groups():
    sampler = make(50, 2, 1, seed=4)
    whole = list(sampler)
    groups = [group.tolist() for group in sampler.batches(4)]
    assert groups == [whole[at : at + 4] for at in range(0, 24, 4)]


def test_a_state_goes_on_exactly_and_on_another_number_of_ranks():
    whole = list(make(96, seed=3))
    before = [make(96, 4, rank, seed=3) for rank in range(4)]
    for sampler in before:
        assert len(list(islice(sampler, 6))) == 6  # 24 positions in all
    state = json.loads(json.dumps(before[1].state_dict()))
    assert (state["epoch"], state["seed"], state["num_replicas"], state["rank"]) == (0, 3, 4, 1)
    for world_size in (1, 2, 3, 8):
        ranks = [make(96, world_size, rank, seed=3) for rank in range(world_size)]
        for sampler in ranks:
            sampler.load_state_dict(state)
        steps = zip(*map(list, ranks), strict=True)
        assert [sample for step in steps for sample in step] == whole[24:]
    with pytest.raises(ConfigError, match="the state lies between two samples of these ranks"):
        make(96, 5, 0, seed=3).load_state_dict(state)


def test_only_the_epoch_of_a_state_is_enough():
    sampler = make(10, seed=1)
    sampler.load_state_dict({"epoch": 3})
    other = make(10, seed=1)
    other.set_epoch(3)
    assert list(sampler) == list(other)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"seed": 2}, "seed"), ({"shuffle": False}, "shuffle"), ({"total": 11}, "total_samples")],
)
def test_a_state_of_another_order_is_refused(options, field):
    state = make(10, seed=1).state_dict()
    settings_ = {"total": 10, "seed": 1, **options}
    sampler = make(settings_.pop("total"), **settings_)
    with pytest.raises(MismatchError) as caught:
        sampler.load_state_dict(state)
    assert list(caught.value.differing) == [field]
    assert "the state belongs to another DistributedSampler" in str(caught.value)


@pytest.mark.parametrize(("world_size", "rank"), [(2, 2), (2, -1), (0, 0)])
def test_a_rank_outside_the_world_is_refused(world_size, rank):
    with pytest.raises(ConfigError, match="bad rank"):
        make(10, world_size, rank)


def test_fewer_samples_than_ranks_are_refused():
    with pytest.raises(ConfigError) as caught:
        make(3, 4, 0)
    assert str(caught.value) == "there are fewer samples than ranks (expected >= 4, got 3)"
    assert len(make(3, 4, 0, drop_last=False)) == 1


# The mixture


def mix(
    weights: Sequence[float] = (3.0, 1.0), world_size: int = 1, rank: int = 0, **options: Any
) -> MixtureSampler:
    return MixtureSampler([0, 40, 100], list(weights), world_size, rank, **options)


def sources(samples: list[int]) -> list[int]:
    return [0 if sample < 40 else 1 for sample in samples]


def test_every_prefix_holds_the_shares():
    samples = sources(list(mix()))
    assert len(samples) == 100
    for stop in range(1, 101):
        assert abs(samples[:stop].count(0) - 0.75 * stop) <= 2


@pytest.mark.parametrize(("temperature", "share"), [(1.0, 0.9), (2.0, 0.75), (1e6, 0.5)])
def test_temperature_flattens_the_weights(temperature, share):
    samples = sources(list(mix((9.0, 1.0), temperature=temperature)))
    assert samples.count(0) == pytest.approx(100 * share, abs=2)
    sampler = mix((1.0, 1.0))
    sampler.update_weights([9.0, 1.0], temperature=temperature)
    assert sources(list(sampler)).count(0) == pytest.approx(100 * share, abs=2)


def run(sampler: MixtureSampler, epochs: int) -> list[int]:
    samples = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        samples += list(sampler)
    return samples


@settings(max_examples=20, deadline=None)
@given(
    weights=st.lists(st.floats(0.1, 5), min_size=2, max_size=2),
    later=st.lists(st.floats(0.1, 5), min_size=2, max_size=2),
    at=st.integers(0, 99),
)
def test_no_sample_is_repeated_or_lost_when_weights_change_in_mid_epoch(weights, later, at):
    sampler = mix(weights)
    stream = iter(sampler)
    samples = list(islice(stream, at))
    sampler.update_weights(later)
    samples += list(stream)
    for epoch in (1, 2):
        sampler.set_epoch(epoch)
        samples += list(sampler)
    assert len(samples) == 300
    for low, high in ((0, 40), (40, 100)):
        mine = [sample for sample in samples if low <= sample < high]
        size = high - low
        for begin in range(0, len(mine), size):  # each pass over a dataset shows all of it
            part = mine[begin : begin + size]
            assert len(set(part)) == len(part)
    rest = sources(samples[at:])
    share = later[0] / sum(later)
    assert abs(rest.count(0) - share * len(rest)) <= 3


def test_new_weights_hold_from_the_next_sample_on():
    sampler = mix((1.0, 0.0))
    stream = iter(sampler)
    before = list(islice(stream, 10))
    sampler.update_weights([0.0, 1.0])
    after = list(stream)
    assert set(sources(before)) == {0} and set(sources(after)) == {1}
    assert len(after) == 90


def test_an_epoch_begun_again_has_the_new_weights_from_its_beginning():
    sampler = mix((1.0, 0.0))
    list(sampler)
    sampler.update_weights([0.0, 1.0])
    assert set(sources(list(sampler))) == {1}


def test_the_global_order_of_a_mixture_does_not_depend_on_the_number_of_ranks():
    whole = run(mix(), 2)
    for world_size in (2, 4, 5):
        ranks = [run(mix(world_size=world_size, rank=rank), 2) for rank in range(world_size)]
        assert [sample for step in zip(*ranks, strict=True) for sample in step] == whole


def test_a_mixture_resumes_behind_changes_and_setting_them_again_changes_nothing():
    def through(sampler: MixtureSampler) -> list[int]:
        sampler.set_epoch(0)
        stream = iter(sampler)
        samples = list(islice(stream, 30))
        sampler.update_weights([1.0, 2.0])
        samples += list(islice(stream, 20))
        sampler.update_weights([1.0, 9.0], temperature=2.0)
        return samples + list(stream)

    whole = through(mix())
    sampler = mix()
    stream = iter(sampler)
    list(islice(stream, 30))
    sampler.update_weights([1.0, 2.0])
    list(islice(stream, 20))
    sampler.update_weights([1.0, 9.0], temperature=2.0)
    list(islice(stream, 11))
    state = json.loads(json.dumps(sampler.state_dict()))
    for again in (False, True):
        resumed = mix()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        if again:  # as a trainer does that walks through its phases when it resumes
            resumed.update_weights([1.0, 2.0])
            resumed.update_weights([1.0, 9.0], temperature=2.0)
        assert list(resumed) == whole[61:]


@pytest.mark.parametrize("cumulative", [[0, 40, 100], [40, 100]])
def test_cumulative_sizes_may_leave_out_the_zero(cumulative):
    assert list(MixtureSampler(cumulative, [3.0, 1.0], 1, 0)) == list(mix())


@pytest.mark.parametrize(
    ("cumulative", "weights"),
    [([0, 40], [1, 1, 1]), ([0, 40, 40], [1, 1]), ([1, 40, 100], [1, 1]), ([0, 50, 40], [1, 1])],
)
def test_sizes_that_make_no_sense_are_refused(cumulative, weights):
    with pytest.raises(ConfigError, match="cumulative_sizes do not fit the weights"):
        MixtureSampler(cumulative, weights, 1, 0)


@pytest.mark.parametrize("weights", [[0, 0], [-1, 2], [float("nan"), 1], [float("inf"), 1]])
def test_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(ConfigError, match="weights must be finite"):
        mix(weights)
    sampler = mix()
    with pytest.raises(ConfigError, match="weights must be finite"):
        sampler.update_weights(weights)
    with pytest.raises(ConfigError, match="one weight for each dataset"):
        sampler.update_weights([1.0])


def test_a_state_of_another_mixture_is_refused():
    state = mix().state_dict()
    with pytest.raises(MismatchError, match="shares"):
        mix((1.0, 1.0)).load_state_dict(state)
    with pytest.raises(MismatchError, match="cumulative_sizes"):
        MixtureSampler([0, 41, 100], [3.0, 1.0], 1, 0).load_state_dict(state)


def test_samples_of_both_samplers_are_plain_ints():
    assert all(type(sample) is int for sample in [*make(5), *mix()])
    assert np.asarray(list(mix())).dtype == np.int64
