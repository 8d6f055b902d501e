"""Fault 27: restored at any step, twice, at the end of an epoch, with prefetch full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.rows.kinds import Rows
from tokenreel.testing import check_resume, equal

KINDS = ("windows", "document_windows", "episodes", "packed")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    write_store(folder / "plain", [31, 0, 22, 40, 7], shard_tokens=25)
    write_store(folder / "chats", [12, 25, 3, 18, 7, 9], sidecar="turns", first_token=1000)
    write_store(folder / "masked", [30, 14, 40], sidecar="mask", shard_tokens=16, first_token=2000)
    return folder


class Stream:
    """A feed with a prefetch, whose state goes through JSON as in a checkpoint."""

    def __init__(self, recipe: Recipe, *, prefetch: int) -> None:
        self.feed, self.prefetch = Feed(recipe), prefetch

    def __iter__(self) -> Iterator[Batch]:
        return self.feed.stream(prefetch=self.prefetch)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(json.dumps(self.feed.state_dict()))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.feed.load_state_dict(state)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rows_resumes_at_every_step(stores: Path, kind: Rows, prefetch: int) -> None:
    source = Source(name="a", path=stores / "plain", rows=kind)
    recipe = recipe_of(source, seq_len=6, global_batch_size=4)
    steps = 9  # more than two epochs
    assert steps * 4 > 2 * Feed(recipe).plans[0].num_rows or kind == "windows"
    check_resume(lambda: Stream(recipe, prefetch=prefetch), steps=steps)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_a_mixture_with_phases_resumes_at_every_step(stores: Path, prefetch: int) -> None:
    sources = (
        Source(name="plain", path=stores / "plain"),
        Source(name="chats", path=stores / "chats", rows="packed"),
        Source(name="masked", path=stores / "masked", rows="document_windows"),
    )
    phases = [
        Phase(start_step=3, weights={"plain": 1, "chats": 3, "masked": 1}, ramp_steps=4),
        Phase(start_step=9, weights={"chats": 1}),
    ]
    recipe = recipe_of(*sources, seq_len=6, global_batch_size=4, phases=phases, steps=14)
    check_resume(lambda: Stream(recipe, prefetch=prefetch), steps=14)


def test_the_end_of_an_epoch_and_of_the_run_are_no_special_places(stores: Path) -> None:
    source = Source(name="a", path=stores / "plain", rows="episodes")
    recipe = recipe_of(
        source, seq_len=6, global_batch_size=4, steps=6
    )  # 4 rows: a step is an epoch
    assert Feed(recipe).plans[0].num_rows == 4
    check_resume(lambda: Stream(recipe, prefetch=2), steps=6)
    ended = Feed(recipe)
    list(ended)
    resumed = Feed(recipe)
    resumed.load_state_dict(ended.state_dict())
    assert list(resumed) == []


def test_a_run_broken_off_at_every_step_is_the_whole_run(stores: Path) -> None:
    source = Source(name="a", path=stores / "chats", rows="packed")
    recipe = recipe_of(source, seq_len=6, global_batch_size=4)
    expected = list(islice(Feed(recipe), 12))
    state, pieced = Feed(recipe).state_dict(), []
    for _ in range(12):
        feed = Feed(recipe)
        feed.load_state_dict(state)
        stream = feed.stream(prefetch=4)
        pieced.append(next(stream))
        state = json.loads(json.dumps(feed.state_dict()))
    assert equal(pieced, expected)
