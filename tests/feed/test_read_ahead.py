"""Pages of coming rows are announced while reading is cold, and read without waiting."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.feed.making import recipe_of

from tokenreel import StoreWriter, native
from tokenreel.feed.batch import Batch
from tokenreel.feed.batcher import Batcher
from tokenreel.feed.feed import Feed
from tokenreel.feed.parts import Part
from tokenreel.feed.read_ahead import COLD_STEPS, STEPS_AHEAD, ReadAhead
from tokenreel.feed.recipe import Source
from tokenreel.store.split import Split
from tokenreel.testing import equal

PAGE = mmap.PAGESIZE
TOKENS = 2**20


@pytest.fixture
def cold_feed(tmp_path: Path) -> Feed:
    """A feed of packed rows and windows whose shard the system has forgotten, if it can."""
    ids = np.random.default_rng(0).integers(0, 999, TOKENS)
    with StoreWriter(tmp_path / "s", vocab_size=1000, weights="uint8") as writer:
        for part in np.split(ids, 2**10):
            writer.add(part, weights=np.ones(len(part), np.uint8))
    for file in (tmp_path / "s" / "train").iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return Feed(recipe_of(Source(name="s", path=tmp_path / "s", rows="episodes"), seq_len=1024))


def resident(array: np.ndarray) -> np.ndarray:
    """Return which pages of a mapped array are in memory, bool."""
    address = array.ctypes.data
    begin = address - address % PAGE
    num_pages = -(-(address + array.nbytes - begin) // PAGE)
    pages = (ctypes.c_ubyte * num_pages)()
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    size = ctypes.c_size_t(num_pages * PAGE)
    assert mincore(ctypes.c_void_p(begin), size, pages) == 0, os.strerror(ctypes.get_errno())
    return np.frombuffer(bytes(pages), np.uint8) & 1 == 1


def pages_of(feed: Feed, step: int, split: Split) -> list[int]:
    """Return the pages of tokens that a step's rows lie in."""
    size = feed.recipe.global_batch_size
    pieces = feed.plans[0].pieces(feed.order.locate(step * size, size).row)
    pages = set[int]()
    for start, length in zip(pieces.start.tolist(), pieces.length.tolist(), strict=True):
        pages |= set(range(start * 2 // PAGE, (start + length - 1) * 2 // PAGE + 1))
    assert len(split.shards) == 1
    return sorted(pages)


@pytest.mark.skipif(native.extension() is None, reason="numpy was asked for")
def test_the_pages_of_an_announced_step_are_read_without_being_touched(cold_feed: Feed) -> None:
    split = cold_feed.plans[0].split
    tokens = split.shards[0].tokens
    expected = pages_of(cold_feed, 3, split)
    before = resident(tokens)
    cold_feed._batcher.announce(3, cold_feed._batcher.part(0, 1))
    after = wait_for(tokens, expected)
    # What was forgotten and not announced stays so: nothing like the whole file is read.
    assert np.count_nonzero(after & ~before) <= 64 * len(expected)


def wait_for(tokens: np.ndarray, pages: list[int]) -> np.ndarray:
    """Wait until pages are in memory, and return which ones are; fail where they never come."""
    deadline = time.monotonic() + 20
    while not resident(tokens)[pages].all():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return resident(tokens)


class Clock:
    """Major faults as a test wants them."""

    def __init__(self) -> None:
        self.faults = 0

    def __call__(self) -> int:
        return self.faults


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tokenreel.feed.read_ahead._major_faults", clock)
    return clock


def test_nothing_is_announced_while_reading_is_warm(clock: Clock) -> None:
    announced: list[int] = []
    ahead = ReadAhead(announced.append)
    for step in range(100):
        ahead.before(step)
        ahead.after(step)
    assert announced == []


def test_after_a_step_that_waited_each_coming_step_is_announced_once(clock: Clock) -> None:
    announced: list[int] = []
    ahead = ReadAhead(announced.append)
    for step in range(100):
        ahead.before(step)
        clock.faults += step == 10
        ahead.after(step)
    assert announced == list(range(11, 10 + COLD_STEPS + STEPS_AHEAD))


def test_a_cold_stream_gives_the_batches_of_a_warm_one(cold_feed: Feed) -> None:
    cold = list(islice(cold_feed.stream(prefetch=2), 20))
    assert equal(cold, [cold_feed.batch(step) for step in range(20)])


def test_a_stream_whose_step_had_to_wait_announces_the_steps_to_come(
    cold_feed: Feed, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[int] = []
    make, announce = Batcher.make, Batcher.announce

    def slow(self: Batcher, step: int, *given: Any, **named: Any) -> Batch:
        clock.faults += step == 2
        return make(self, step, *given, **named)

    def noted(self: Batcher, step: int, part: Part) -> None:
        announced.append(step)
        announce(self, step, part)

    monkeypatch.setattr(Batcher, "make", slow)
    monkeypatch.setattr(Batcher, "announce", noted)
    for _ in islice(cold_feed.stream(prefetch=0), 5):
        pass
    assert announced == list(range(3, 5 + STEPS_AHEAD))
