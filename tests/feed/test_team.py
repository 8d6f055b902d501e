"""Threads that share the rows of a batch: the same batches, and errors that arrive."""

from __future__ import annotations

import os
import threading

import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.feed.team import LEAST_TOKENS, Team
from tokenreel.testing import equal


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A recipe of batches that are worth sharing out, some of their windows padded."""
    folder = tmp_path_factory.mktemp("large")
    write_store(folder / "a", [3001])
    write_store(folder / "b", [90, 700, 31, 400], sidecar="turns", first_token=5000)
    sources = (
        Source(name="a", path=folder / "a"),
        Source(name="b", path=folder / "b", rows="packed"),
    )
    return recipe_of(*sources, seq_len=512, batch_size=4 * LEAST_TOKENS // 512)


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_any_number_of_threads_gives_the_same_batches(large: Recipe, threads: int) -> None:
    one, several = Feed(large), Feed(large, threads=threads)
    for step in range(2):
        assert equal(one.batch(step), several.batch(step))
    workers = [t for t in threading.enumerate() if t.name.startswith("tokenreel-rows")]
    assert workers


def test_plain_windows_are_shared_out_as_well(large: Recipe) -> None:
    recipe = recipe_of(large.sources[0], seq_len=512, batch_size=large.batch_size)
    assert equal(Feed(recipe).batch(1), Feed(recipe, threads=4).batch(1))


def test_small_batches_wake_nobody() -> None:
    parts = [Team(8).num_parts(rows, 1024) for rows in (1, 127, 256, 512, 4096)]
    assert parts == [1, 1, 2, 4, 8]
    assert Team(1).num_parts(10**9, 1024) == 1
    assert Team(8).num_parts(3, 10**9) == 3


def test_parts_come_in_order_and_cover_all_rows() -> None:
    assert Team(4).split(lambda start, stop: (start, stop), 10, 4) == [
        (0, 2),
        (2, 5),
        (5, 7),
        (7, 10),
    ]


@pytest.mark.parametrize("bad", [0, 2])
def test_an_error_of_any_thread_arrives_when_all_have_ended(bad: int) -> None:
    ended = []

    def work(start: int, stop: int) -> None:
        if start == bad:
            raise ValueError(f"part {start} is bad")
        ended.append(start)

    with pytest.raises(ValueError, match=f"part {bad} is bad"):
        Team(3).split(work, 3, 3)
    assert sorted(ended) == [part for part in range(3) if part != bad]


def test_a_forked_process_has_threads_of_its_own(large: Recipe) -> None:
    feed = Feed(large, threads=2)
    expected = feed.batch(0)
    child = os.fork()
    if child == 0:
        os._exit(0 if equal(feed.batch(0), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_a_number_of_threads_that_makes_no_sense_is_refused(large: Recipe, threads: int) -> None:
    with pytest.raises(ConfigError, match=r"bad number of threads \(expected 1 to 1,024"):
        Feed(large, threads=threads)
