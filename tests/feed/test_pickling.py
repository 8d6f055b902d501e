"""A feed is a recipe and a step: it can be pickled, copied, and sent to another process."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.errors import MismatchError, NoStoreError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Source
from tokenreel.testing import equal

WAYS = [
    lambda feed: pickle.loads(pickle.dumps(feed)),
    copy.deepcopy,
    copy.copy,
]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    write_store(tmp_path / "a", [100, 7, 30])
    write_store(tmp_path / "b", [9, 12, 40], first_token=1000)
    sources = [
        Source(name="a", path=tmp_path / "a", weight=0.7),
        Source(name="b", path=str(tmp_path / "b"), rows="packed", weight=0.3),
    ]
    phase = Phase(start_step=9, weights={"a": 0.5, "b": 0.5})
    return Feed(recipe_of(*sources, seed=3, phases=[phase], steps=50), threads=2)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_gives_the_same_batches_from_the_same_step_on(
    feed: Feed, way: Callable[[Any], Feed]
) -> None:
    feed.step = 4
    feed.change_weights({"a": 0.1, "b": 0.9})
    feed.step = 6
    other = way(feed)
    assert (other.step, other.changes, other.fingerprint) == (6, feed.changes, feed.fingerprint)
    assert all(equal(feed.batch(step), other.batch(step)) for step in (0, 5, 20))
    assert equal(next(other.stream(prefetch=1)), feed.batch(6))
    assert feed.step == 6, "streaming the copy moved the original"


def test_a_pickled_feed_is_some_kilobytes_whatever_the_store(feed: Feed) -> None:
    assert len(pickle.dumps(feed)) < 8_000


def test_an_evaluation_that_was_streamed_in_part_begins_anew_in_its_copy(tmp_path: Path) -> None:
    write_store(tmp_path / "a", [100])
    feed = Feed(recipe_of(Source(name="a", path=tmp_path / "a"), passes=1))
    next(iter(feed))
    assert next(iter(pickle.loads(pickle.dumps(feed)))).step == next(iter(feed)).step == 0


def _first(feed: Feed) -> Any:
    return next(iter(feed)).input_ids


def test_a_spawned_process_is_given_a_feed(feed: Feed) -> None:
    feed.step = 11
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        received = pool.apply(_first, [feed])
    assert (received == feed.batch(11).input_ids).all()


def test_a_store_that_is_gone_or_another_is_refused(feed: Feed, tmp_path: Path) -> None:
    sent = pickle.dumps(feed)
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(NoStoreError, match="b: there is no such file or folder"):
        pickle.loads(sent)
    write_store(tmp_path / "b", [9, 12, 41], first_token=1000)
    with pytest.raises(MismatchError, match=r"belongs to another run; differing: .*stores\.1"):
        pickle.loads(sent)
