"""Batches made ahead: in order, with their errors, and without a thread left behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from itertools import count, islice
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.buffers import Allocate
from tokenreel.feed.feed import Feed
from tokenreel.feed.prefetch import make_ahead
from tokenreel.feed.recipe import Source
from tokenreel.testing import equal


def feeding_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("tokenreel-feed")]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    write_store(tmp_path / "a", [300], shard_tokens=70)
    write_store(tmp_path / "b", [9, 30, 4, 11], first_token=1000)
    sources = (
        Source(name="a", path=tmp_path / "a"),
        Source(name="b", path=tmp_path / "b", rows="episodes"),
    )
    return Feed(recipe_of(*sources, seq_len=8, global_batch_size=4))


@pytest.mark.parametrize("depth", [0, 1, 2, 7])
def test_what_is_made_ahead_comes_in_order_and_ends(depth: int) -> None:
    made = list(make_ahead(lambda step: step * step, iter(range(20)), depth=depth))
    assert made == [step * step for step in range(20)]
    assert feeding_threads() == []


def test_no_more_is_made_ahead_than_asked_for() -> None:
    made: list[int] = []
    stream = make_ahead(lambda step: made.append(step) or step, count(), depth=3)  # type: ignore[func-returns-value]
    assert next(stream) == 0
    time.sleep(0.05)
    assert max(made) == 3
    stream.close()


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_an_error_in_the_background_arrives_at_its_step(depth: int) -> None:
    def make(step: int) -> int:
        if step == 5:
            raise ValueError("step 5 is bad")
        return step

    taken = []
    with pytest.raises(ValueError, match="step 5 is bad"):
        for step in make_ahead(make, count(), depth=depth):
            taken.append(step)
    assert taken == [0, 1, 2, 3, 4]
    assert feeding_threads() == []


def test_a_stream_that_is_closed_or_forgotten_leaves_no_thread(feed: Feed) -> None:
    stream = feed.stream(prefetch=4)
    next(stream)
    assert feeding_threads()
    stream.close()  # type: ignore[attr-defined]
    assert feeding_threads() == []
    for batch in feed.stream(prefetch=4):
        if batch.step == 3:
            break
    del batch
    assert feeding_threads() == []


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_prefetching_changes_no_batch_and_counts_what_was_taken(feed: Feed, prefetch: int) -> None:
    expected = [feed.batch(step) for step in range(12)]
    for step, batch in enumerate(islice(feed.stream(prefetch=prefetch), 12)):
        assert equal(batch, expected[step])
        assert feed.state_dict()["step"] == step + 1


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_weights_changed_in_the_middle_hold_from_the_next_batch_on(
    feed: Feed, prefetch: int
) -> None:
    stream = feed.stream(prefetch=prefetch)
    for _ in range(5):
        next(stream)
    feed.change_weights({"a": 0.1, "b": 0.9})
    state = feed.state_dict()
    rest = list(islice(stream, 6))
    resumed = Feed(feed.recipe)
    resumed.load_state_dict(state)
    assert [batch.step for batch in rest] == list(range(5, 11))
    assert equal(rest, list(islice(resumed, 6)))
    assert not equal(rest, [Feed(feed.recipe).batch(step) for step in range(5, 11)])


def test_a_negative_prefetch_is_refused(feed: Feed) -> None:
    with pytest.raises(ConfigError, match=r"bad prefetch \(expected >= 0, got -1\)"):
        feed.stream(prefetch=-1)


def test_batches_are_never_overwritten_unless_asked_for(feed: Feed) -> None:
    expected = [feed.batch(step) for step in range(12)]
    assert equal(list(islice(feed.stream(prefetch=3), 12)), expected)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("keep", [1, 2, 3])
def test_a_batch_is_kept_for_as_many_as_asked_and_then_its_memory_is_used_again(
    feed: Feed, prefetch: int, keep: int
) -> None:
    expected = [feed.batch(step) for step in range(20)]
    memory: dict[int, int] = {}
    held: list[Batch] = []
    for batch in islice(feed.stream(prefetch=prefetch, keep=keep), 20):
        held = [*held, batch][-keep:]
        time.sleep(0.002)  # the threads have time to spoil what they must not touch
        for kept in held:
            assert equal(kept, expected[kept.step])
        memory[batch.step] = batch.input_ids.ctypes.data
    ring = prefetch + keep
    assert len(set(memory.values())) == ring
    assert all(memory[step] == memory[step - ring] for step in range(ring, 20))


def test_the_memory_of_batches_comes_from_who_is_asked_for_it(feed: Feed) -> None:
    given: list[np.ndarray] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        given.append(np.full(shape, 99, dtype))
        return given[-1]

    taken = islice(feed.stream(prefetch=2, keep=1, allocate=allocate), 9)
    for step, batch in enumerate(taken):
        assert equal(batch, feed.batch(step))
        for name in ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids"):
            assert any(np.shares_memory(getattr(batch, name), lent) for lent in given)
    assert len(given) == 3 * 5


@pytest.mark.parametrize("prefetch", [0, 2])
def test_memory_that_no_batch_fits_into_is_refused(feed: Feed, prefetch: int) -> None:
    for wrong in (
        lambda shape, dtype: np.empty(shape[0] * shape[1], dtype),
        lambda shape, dtype: np.empty(shape, np.int32),
        lambda shape, dtype: np.empty((shape[0], 2 * shape[1]), dtype)[:, ::2],
        lambda shape, dtype: None,
    ):
        with pytest.raises(ConfigError, match="a batch cannot be put into this memory"):
            next(feed.stream(prefetch=prefetch, allocate=cast(Allocate, wrong)))
    assert feeding_threads() == []


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_state_loaded_while_streaming_ends_the_stream_and_holds(
    feed: Feed, prefetch: int
) -> None:
    stream = feed.stream(prefetch=prefetch)
    next(stream), next(stream)
    state = feed.state_dict()
    next(stream)
    feed.load_state_dict(state)
    with pytest.raises(ConfigError, match=r"a state was loaded while .*begin another stream"):
        next(stream)
    assert feed.step == 2
    assert equal(next(feed.stream(prefetch=prefetch)), feed.batch(2))


def test_a_stream_does_not_end_in_silence_where_steps_cannot_be_counted(feed: Feed) -> None:
    feed.load_state_dict({**feed.state_dict(), "step": 2**60})
    with pytest.raises(ConfigError, match="position out of range"):
        next(feed.stream())


@pytest.mark.skipif(native.extension() is None, reason="the short way of the kernel")
def test_plain_batches_need_memory_for_ids_alone(tmp_path: Path) -> None:
    write_store(tmp_path / "a", [8 * 12 + 1])
    feed = Feed(recipe_of(Source(name="a", path=tmp_path / "a"), seq_len=8, global_batch_size=4))
    shapes: list[tuple[int, ...]] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        shapes.append(shape)
        return np.empty(shape, dtype)

    list(islice(feed.stream(keep=1, allocate=allocate), 6))
    assert shapes == [(4, 8)] * 2


def test_weights_changed_while_memory_is_used_again_spoil_no_batch(feed: Feed) -> None:
    stream = feed.stream(prefetch=3, keep=1)
    for _ in range(5):
        next(stream)
    feed.change_weights({"a": 0.1, "b": 0.9})
    for batch in islice(stream, 8):
        assert equal(batch, feed.batch(batch.step))


def test_a_keep_of_none_left_is_refused(feed: Feed) -> None:
    with pytest.raises(ConfigError, match=r"bad keep \(expected >= 1, got 0\)"):
        feed.stream(keep=0)


def test_several_threads_make_batches_ahead_in_order(feed: Feed) -> None:
    expected = [feed.batch(step) for step in range(40)]
    several = Feed(feed.recipe, threads=3)
    seen = set()
    for step, batch in enumerate(islice(several.stream(prefetch=6, keep=1), 40)):
        assert equal(batch, expected[step])
        seen |= set(feeding_threads())
    assert len(seen) == 3
    assert feeding_threads() == []


def test_a_forked_process_is_told_to_begin_a_stream_of_its_own(feed: Feed) -> None:
    stream = feed.stream(prefetch=2)
    next(stream)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # the threads that would go on are the parent's
        try:
            next(stream)
        except ConfigError as error:
            os._exit(0 if "the stream was begun in another process" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert equal(next(stream), feed.batch(1))


def test_a_stream_in_a_cycle_is_collected_without_waiting_for_its_threads() -> None:
    """The collector may run where a thread is being started: to wait for one there never ends."""
    may_end, has_begun = threading.Event(), threading.Event()

    def make(number: int) -> int:
        if number:
            has_begun.set()
            may_end.wait(20)
        return number

    stream = make_ahead(make, count(), depth=1)
    assert next(stream) == 0
    has_begun.wait(20)
    cycle: list[object] = [stream]
    cycle.append(cycle)
    giving_up = threading.Timer(10, may_end.set)
    giving_up.start()
    del stream, cycle
    gc.collect()
    assert not may_end.is_set()
    giving_up.cancel()
    may_end.set()
