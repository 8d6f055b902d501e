"""Fault 29: the state of another store, another recipe or a newer version."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.errors import ConfigError, MismatchError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.feed.state import pack_changes


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_store(tmp_path / "a", [100])
    write_store(tmp_path / "b", [20, 30, 40])
    sources = (
        Source(name="a", path=tmp_path / "a", weight=0.5),
        Source(name="b", path=tmp_path / "b", rows="episodes", weight=0.5),
    )
    return recipe_of(
        *sources, seq_len=8, global_batch_size=12, phases=[Phase(start_step=3, weights={"a": 1})]
    )


def state_of(recipe: Recipe) -> dict[str, Any]:
    feed = Feed(recipe)
    feed.step = 5
    state: dict[str, Any] = json.loads(json.dumps(feed.state_dict()))
    return state


def changed_source(recipe: Recipe, **settings: Any) -> Recipe:
    first, *rest = recipe.sources
    return replace(recipe, sources=[replace(first, **settings), *rest])


def refused(state: dict[str, Any], recipe: Recipe) -> MismatchError:
    feed = Feed(recipe)
    feed.step = 2
    before = feed.state_dict()
    with pytest.raises(MismatchError) as caught:
        feed.load_state_dict(state)
    assert feed.state_dict() == before  # nothing is half loaded
    assert "the state belongs to another run" in str(caught.value)
    assert "resume with the stores and the recipe it was saved with" in str(caught.value)
    return caught.value


def test_one_token_changed_is_another_store(recipe: Recipe, tmp_path: Path) -> None:
    state = state_of(recipe)
    shutil.rmtree(tmp_path / "a")
    write_store(tmp_path / "a", [100], first_token=2)
    error = refused(state, recipe)
    assert set(error.differing) == {"stores.0"}
    assert error.differing["stores.0"] == (
        state["identity"]["stores"][0],
        Feed(recipe).stores[0].fingerprint,
    )


@pytest.mark.parametrize(
    ("settings", "field", "expected", "actual"),
    [
        ({"seed": 1}, "recipe.seed", 0, 1),
        ({"global_batch_size": 24}, "recipe.global_batch_size", 12, 24),
        ({"pad_id": 9}, "recipe.pad_id", 0, 9),
        ({"temperature": 2.0}, "recipe.temperature", 1.0, 2.0),
        ({"phases": []}, "recipe.phases.0.start_step", 3, None),
    ],
)
def test_another_recipe_is_told_by_its_fields(
    recipe: Recipe, settings: dict[str, Any], field: str, expected: Any, actual: Any
) -> None:
    error = refused(state_of(recipe), replace(recipe, **settings))
    assert error.differing[field] == (expected, actual)
    assert f"{field} (expected {expected!r}, got {actual!r})" in str(error)


def test_another_length_of_rows_differs_in_recipe_and_plans(recipe: Recipe) -> None:
    error = refused(state_of(recipe), replace(recipe, seq_len=9))
    assert set(error.differing) == {"recipe.seq_len", "plans.0.seq_len", "plans.1.seq_len"}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"weight": 0.6}, "recipe.sources.0.weight"),
        ({"name": "c"}, "recipe.sources.0.name"),
        ({"shuffle": False}, "recipe.sources.0.shuffle"),
        ({"rows": "document_windows"}, "plans.0.rows"),
    ],
)
def test_another_source_is_told_by_its_field(
    recipe: Recipe, settings: dict[str, Any], field: str
) -> None:
    other = changed_source(replace(recipe, phases=[]), **settings)
    error = refused(state_of(replace(recipe, phases=[])), other)
    assert field in error.differing


def test_one_source_more_is_another_recipe(recipe: Recipe, tmp_path: Path) -> None:
    extra = Source(name="c", path=tmp_path / "a")
    error = refused(state_of(recipe), replace(recipe, sources=[*recipe.sources, extra]))
    assert error.differing["recipe.sources.2.name"] == (None, "c")


def test_what_changes_no_batch_may_differ(recipe: Recipe, tmp_path: Path) -> None:
    state = state_of(recipe)
    shutil.move(tmp_path / "a", tmp_path / "moved")
    other = replace(recipe, grad_accum=3, steps=99)
    other = changed_source(other, path=tmp_path / "moved", mode="pread")
    feed = Feed(other)
    feed.load_state_dict(state)
    assert feed.step == 5


@pytest.mark.parametrize("version", [3, 1, None, "2"])
def test_a_state_of_another_version_is_refused(recipe: Recipe, version: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Feed(recipe).load_state_dict({**state_of(recipe), "version": version})
    assert str(caught.value).startswith(
        f"unknown version of a feed's state (expected 2, got {version!r})"
    )
    assert ("written by a newer tokenreel" in str(caught.value)) == (version == 3)


@pytest.mark.parametrize("part", ["step", "changes", "fingerprint", "identity"])
def test_a_state_that_lacks_a_part_is_refused(recipe: Recipe, part: str) -> None:
    state = state_of(recipe)
    del state[part]
    with pytest.raises(ConfigError, match=f"not a feed's state: it lacks {part}"):
        Feed(recipe).load_state_dict(state)


@pytest.mark.parametrize("step", [-1, 2.5, "5", None, True])
def test_a_step_that_is_none_is_refused(recipe: Recipe, step: object) -> None:
    with pytest.raises(ConfigError, match="bad step in a feed's state"):
        Feed(recipe).load_state_dict({**state_of(recipe), "step": step})


def test_changes_out_of_order_are_refused(recipe: Recipe) -> None:
    changes = pack_changes([(4, (1.0, 0.0)), (2, (1.0, 0.0))])
    with pytest.raises(ConfigError, match=r"bad step in a feed's state \(expected >= 4, got 2\)"):
        Feed(recipe).load_state_dict({**state_of(recipe), "changes": changes})


def test_a_fingerprint_that_fits_nothing_is_named(recipe: Recipe) -> None:
    error = refused({**state_of(recipe), "fingerprint": "00"}, recipe)
    assert error.differing == {"fingerprint": ("00", Feed(recipe).fingerprint)}


def packed_changes(count: int) -> str:
    body = np.ones(count, "<i8").tobytes() + np.ones(2 * count).tobytes()
    return base64.b64encode(zlib.compress(body, 9)).decode()


def test_a_few_bytes_that_unpack_to_a_million_changes_are_refused(recipe: Recipe) -> None:
    state = {**Feed(recipe).state_dict(), "step": 2**40}
    assert len(packed_changes(10**6)) < 60_000
    with pytest.raises(ConfigError, match="bad changes"):
        Feed(recipe).load_state_dict({**state, "changes": packed_changes(10**6)})
    Feed(recipe).load_state_dict({**state, "changes": packed_changes(100)})


@pytest.mark.parametrize("bits", [20_000, 63, 70])
def test_a_step_that_no_run_has_is_refused_when_the_state_is_loaded(
    recipe: Recipe, bits: int
) -> None:
    with pytest.raises(ConfigError, match="bad step in a feed's state"):
        Feed(recipe).load_state_dict({**Feed(recipe).state_dict(), "step": 1 << bits})


@pytest.mark.parametrize("part", ["version", "step"])
def test_a_value_of_any_depth_is_refused_in_few_words(recipe: Recipe, part: str) -> None:
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    with pytest.raises(ConfigError) as caught:
        Feed(recipe).load_state_dict({**Feed(recipe).state_dict(), part: deep})
    assert len(str(caught.value)) < 300
