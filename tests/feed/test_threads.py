"""Threads that share the rows of a batch: the same batches, and errors that arrive."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.testing import equal

SHARE = 1 << 16  # tokens that the kernel finds worth a thread


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A recipe of batches that are worth sharing out, some of their windows padded."""
    folder = tmp_path_factory.mktemp("large")
    # More rows than a batch has: the kernel has no more than two epochs at hand.
    write_store(folder / "a", [300_001], vocab_size=2**20)
    lengths = [90, 700, 31, 400] * 200
    write_store(folder / "b", lengths, sidecar="turns", vocab_size=2**20, first_token=5000)
    sources = (
        Source(name="a", path=folder / "a"),
        Source(name="b", path=folder / "b", rows="packed"),
    )
    return recipe_of(*sources, seq_len=512, global_batch_size=4 * SHARE // 512)


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_any_number_of_threads_gives_the_same_batches(large: Recipe, threads: int) -> None:
    one, several = Feed(large), Feed(large, threads=threads)
    for step in range(2):
        assert equal(one.batch(step), several.batch(step))


def test_plain_windows_are_shared_out_as_well(large: Recipe) -> None:
    recipe = recipe_of(large.sources[0], seq_len=512, global_batch_size=large.global_batch_size)
    assert equal(Feed(recipe).batch(1), Feed(recipe, threads=4).batch(1))


COUNTING = """
import sys
from pathlib import Path
from tokenreel import Feed, Recipe, Source

def threads():
    return len(list(Path("/proc/self/task").iterdir()))

def feed(batch_size):
    sources = [Source(name="a", path=sys.argv[1])]
    recipe = Recipe(seq_len=512, global_batch_size=batch_size, seed=7, sources=sources)
    return Feed(recipe, threads=3)

small, large = feed(8), feed(int(sys.argv[2]))
small.batch(0)
before = threads()
for step in range(9):
    small.batch(step)
print(threads() - before)
for step in range(9):
    large.batch(step)
print(threads() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
@pytest.mark.skipif(native.extension() is None, reason="threads are the kernel's")
def test_helpers_come_with_the_first_large_batch_and_stay(large: Recipe) -> None:
    run = [sys.executable, "-c", COUNTING, str(large.sources[0].path), str(large.global_batch_size)]
    assert subprocess.check_output(run, text=True).split() == ["0", "2"]


def test_callers_that_share_the_helpers_get_their_own_batches(large: Recipe) -> None:
    feed = Feed(large, threads=3)
    expected = [feed.batch(step) for step in range(2)]
    wrong: list[int] = []

    def work(step: int) -> None:
        wrong.extend(n for n in range(8) if not equal(feed.batch(step), expected[step]))

    callers = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_forked_process_has_threads_of_its_own(large: Recipe) -> None:
    feed = Feed(large, threads=2)
    expected = feed.batch(0)
    child = os.fork()
    if child == 0:
        os._exit(0 if equal(feed.batch(0), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_a_number_of_threads_that_makes_no_sense_is_refused(large: Recipe, threads: int) -> None:
    with pytest.raises(ConfigError, match=r"bad number of threads \(expected 1 to 256"):
        Feed(large, threads=threads)
