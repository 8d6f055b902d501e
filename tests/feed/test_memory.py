"""Memory is given out again when the last view of it is gone, and not a moment before."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.feed.feed import Feed
from tokenreel.feed.memory import KEPT, Memory
from tokenreel.feed.recipe import Source


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_what_nobody_holds_is_given_out_again() -> None:
    memory = Memory()
    place = address(memory.array((4, 8), np.int64))
    assert address(memory.array((8, 4), np.int64)) == place
    assert address(memory.array((64,), np.int32)) == place


def test_what_somebody_holds_is_not() -> None:
    memory = Memory()
    whole = memory.array((2, 4, 8), np.int64)
    part = whole[1][:, ::2]
    view = memoryview(whole[0])
    del whole
    assert not np.shares_memory(memory.array((2, 4, 8), np.int64), part)
    del part
    assert not np.shares_memory(memory.array((2, 4, 8), np.int64), np.asarray(view))
    kept = [memory.array((2, 4, 8), np.int64) for _ in range(2 * KEPT)]
    assert len({address(array) for array in kept}) == 2 * KEPT


def test_memory_of_another_size_is_of_no_use() -> None:
    memory = Memory()
    place = address(memory.array((4, 8), np.int64))
    other = memory.array((4, 9), np.int64)
    assert address(other) != place
    assert address(memory.array((4, 8), np.int64)) == place


def test_no_more_is_kept_than_was_asked_for_lately() -> None:
    memory = Memory()
    held = [memory.array((n, 8), np.int64) for n in range(1, 3 * KEPT)]
    assert sum(map(len, memory._kept.values())) == KEPT
    del held
    place = address(memory.array((3 * KEPT - 1, 8), np.int64))
    assert address(memory.array((3 * KEPT - 1, 8), np.int64)) == place
    assert sum(map(len, memory._kept.values())) <= KEPT


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    write_store(tmp_path / "a", [40, 9, 3, 27, 16] * 8, sidecar="turns")
    source = Source(name="a", path=tmp_path / "a", rows="packed")
    return Feed(recipe_of(source, seq_len=512, global_batch_size=2))


def test_batches_that_nobody_holds_lend_their_memory(feed: Feed) -> None:
    places = {address(feed.batch(step, extra=("attention_mask",)).labels) for step in range(40)}
    assert len(places) <= 2
    places = {address(batch.labels) for batch in islice(feed, 40)}
    assert len(places) <= 3


@pytest.mark.parametrize("prefetch", [0, 3])
def test_what_is_held_of_a_batch_stays_as_it_is(feed: Feed, prefetch: int) -> None:
    stream = feed.stream(prefetch=prefetch, extra=("attention_mask",))
    held = {
        batch.step: (batch.input_ids[1:], batch.labels.data, batch.attention_mask[0, ::2])
        for batch in islice(stream, 60)
    }
    for step, (inputs, labels, mask) in held.items():
        batch = feed.batch(step)
        assert np.array_equal(inputs, batch.input_ids[1:])
        assert np.array_equal(np.asarray(labels), batch.labels)
        assert np.array_equal(mask, batch.attention_mask[0, ::2])


def test_tensors_hold_their_memory_too(feed: Feed) -> None:
    import torch

    tensors = [torch.from_numpy(feed.batch(step).input_ids)[:1] for step in range(60)]
    for step, tensor in enumerate(tensors):
        assert np.array_equal(tensor.numpy(), feed.batch(step).input_ids[:1])


def test_the_size_that_was_asked_for_last_is_the_last_to_be_forgotten() -> None:
    memory = Memory()
    first = memory.array((1, 8), np.int64)
    others = [memory.array((2, 8), np.int64) for _ in range(KEPT - 2)]
    mine = [first, *(memory.array((1, 8), np.int64) for _ in range(3))]  # two more than are kept
    assert {size: len(blocks) for size, blocks in memory._kept.items()} == {
        64: len(mine),
        128: len(others) - 2,
    }
