"""Lanes and ranks: the same stream for any number of ranks that divides the lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.stream.making import batches_of, config_of, documents_in, take, texts_of, write_texts

from tokenreel.errors import ConfigError, MismatchError
from tokenreel.stream import join_states


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    path = write_texts(tmp_path / "a.jsonl", texts_of(90))
    return config_of(path, num_lanes=4, train_batch_size=8)


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_ranks_side_by_side_are_the_batch_of_one(config: dict[str, Any], mode: str) -> None:
    config["data"]["packing_mode"] = mode
    whole = take(batches_of(config), 6)
    assert whole[0].input_ids.shape == (2, 8, 24)
    for world_size in (2, 4):
        ranks = [
            take(batches_of(config, rank=rank, world_size=world_size), 6)
            for rank in range(world_size)
        ]
        for step, parts in enumerate(zip(*ranks, strict=True)):
            for name in ("input_ids", "labels", "segment_ids", "position_ids", "attention_mask"):
                joined = np.concatenate([getattr(part, name) for part in parts], axis=1)
                assert np.array_equal(joined, getattr(whole[step], name))


def test_the_number_of_ranks_may_change_on_the_way(config: dict[str, Any]) -> None:
    expected = take(batches_of(config), 9)
    state: dict[str, Any] | None = None
    pieced = []
    for world_size in (4, 1, 2):
        ranks = [batches_of(config, rank=rank, world_size=world_size) for rank in range(world_size)]
        if state is not None:
            for stream in ranks:
                stream.set_state(state)
        for _ in range(3):
            parts = [next(stream).labels for stream in ranks]
            pieced.append(np.concatenate(parts, axis=1))
        state = join_states([stream.get_state() for stream in ranks])
    assert all(
        np.array_equal(one, other.labels) for one, other in zip(pieced, expected, strict=True)
    )


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("settings", [{"end": "pad"}, {"end": "drop"}, {"eval_fraction": 0.5}])
def test_ranks_end_at_the_same_step_and_what_they_give_is_the_whole(
    config: dict[str, Any], settings: dict[str, Any], lanes: int
) -> None:
    config["data"].update(num_lanes=lanes, repeat=False, **settings)
    split = "eval" if "eval_fraction" in settings else "train"
    whole = list(batches_of(config, split=split))
    for world_size in (2, 8):
        ranks = [
            batches_of(config, split=split, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        middle = len(whole) // 2
        begun = [take(stream, middle) for stream in ranks]
        state = ranks[0].get_state()  # each rank's state is that of all
        assert all(stream.get_state() == state for stream in ranks)
        ranks = [
            batches_of(config, split=split, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for stream in ranks:
            stream.set_state(state)
        parts = [first + list(rest) for first, rest in zip(begun, ranks, strict=True)]
        for step, side_by_side in enumerate(zip(*parts, strict=True)):
            assert side_by_side[0].labels.shape == (2, 8 // world_size, 24)
            joined = np.concatenate([part.labels for part in side_by_side], axis=1)
            assert np.array_equal(joined, whole[step].labels)
        assert len(parts[0]) == len(whole) > 2


def test_every_document_goes_to_one_lane(tmp_path: Path) -> None:
    texts = [f"{number:04d}" for number in range(50)]
    path = write_texts(tmp_path / "a.jsonl", texts)
    config = config_of(
        path,
        num_lanes=2,
        repeat=False,
        packing_mode="bin",
        train_seq_len=8,
        tokenizer_add_eos=False,
    )
    assert sorted(documents_in(batches_of(config))) == texts


def test_states_of_other_ranks_and_moments_are_refused(config: dict[str, Any]) -> None:
    one, other = (batches_of(config, rank=rank, world_size=2) for rank in range(2))
    next(one)
    with pytest.raises(ConfigError, match=r"of another rank \(expected lanes 2, 3, got 0, 1\)"):
        other.set_state(one.get_state())
    with pytest.raises(MismatchError, match=r"not of one moment of one stream.*step"):
        join_states([one.get_state(), other.get_state()])


def test_ranks_that_cannot_be_served_are_refused_at_start(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the ranks do not divide the lanes"):
        batches_of(config, world_size=3)
    with pytest.raises(ConfigError, match=r"bad rank \(expected 0 to 1, got 2\)"):
        batches_of(config, rank=2, world_size=2)
    config["data"]["repeat"] = False
    with pytest.raises(ConfigError, match=r"the ranks do not divide the batch \(.*multiple of 3"):
        batches_of(config, world_size=3)
    config["data"]["num_lanes"] = 1
    config["stream"] = {"cache_to": "never"}
    with pytest.raises(ConfigError, match="a store is written by one rank"):
        batches_of(config, world_size=2)
