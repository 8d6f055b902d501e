"""Weights decided in the middle of a run: no row repeated or lost, and the state carries them."""

from __future__ import annotations

import base64
import json
import zlib
from itertools import islice
from pathlib import Path

import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.feed.state import pack_changes
from tokenreel.testing import equal


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_store(tmp_path / "a", [201])
    write_store(tmp_path / "b", [97], first_token=1000)
    sources = [Source(name=name, path=tmp_path / name) for name in ("a", "b")]
    phases = [Phase(start_step=3, weights={"a": 1, "b": 2}, ramp_steps=4)]
    return recipe_of(*sources, seq_len=8, global_batch_size=4, phases=phases)


def changed(recipe: Recipe) -> Feed:
    """Run to step 5, change, run to 9, change twice, and stop at 12."""
    feed = Feed(recipe)
    list(islice(feed, 5))
    feed.change_weights({"a": 1, "b": 9})
    list(islice(feed, 4))
    feed.change_weights({"a": 1})
    feed.change_weights({"a": 3, "b": 1})
    list(islice(feed, 3))
    return feed


def test_what_came_before_a_change_stays(recipe: Recipe) -> None:
    plain, feed = Feed(recipe), changed(recipe)
    assert equal([feed.batch(s) for s in range(5)], [plain.batch(s) for s in range(5)])
    assert not equal([feed.batch(s) for s in range(5, 9)], [plain.batch(s) for s in range(5, 9)])


def test_no_row_is_repeated_or_lost_over_changes(recipe: Recipe) -> None:
    feed = changed(recipe)
    shown: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for step in range(60):
        for row in feed.explain(step).rows:
            span = (row.segments[0].start, row.segments[-1].stop)
            shown.setdefault((row.source, row.epoch), []).append(span)
    for name, num_rows in (("a", 25), ("b", 12)):
        epochs = [rows for (source, _), rows in sorted(shown.items()) if source == name]
        assert all(len(rows) == len(set(rows)) == num_rows for rows in epochs[:-1])
        assert len(epochs) >= 3
        assert len(set(epochs[-1])) == len(epochs[-1])


def test_the_state_carries_every_change_through_json(recipe: Recipe) -> None:
    feed = changed(recipe)
    state = json.loads(json.dumps(feed.state_dict()))
    assert [change["step"] for change in feed.changes] == [5, 9, 9]
    assert feed.changes[0]["weights"] == {"a": 1.0, "b": 9.0}
    resumed = Feed(recipe)
    resumed.load_state_dict(state)
    assert resumed.step == 12
    assert equal([resumed.batch(s) for s in range(40)], [feed.batch(s) for s in range(40)])
    assert resumed.state_dict() == feed.state_dict()


def test_an_older_state_takes_the_changes_back(recipe: Recipe) -> None:
    feed = Feed(recipe)
    before = feed.state_dict()
    list(islice(feed, 5))
    feed.change_weights({"b": 1})
    feed.load_state_dict(before)
    assert equal([feed.batch(s) for s in range(9)], [Feed(recipe).batch(s) for s in range(9)])
    assert feed.state_dict() == before


def test_the_new_weights_hold_from_the_current_step_on(recipe: Recipe) -> None:
    feed = Feed(recipe)
    list(islice(feed, 5))
    feed.change_weights({"b": 1})
    assert {row.source for row in feed.explain(5).rows} == {"b"}
    assert {row.source for step in range(5, 40) for row in feed.explain(step).rows} == {"b"}


def test_a_state_is_not_changed_by_what_comes_after(recipe: Recipe) -> None:
    feed = changed(recipe)
    state = feed.state_dict()
    kept = json.dumps(state)
    feed.change_weights({"a": 1})
    assert json.dumps(state) == kept


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"aa": 1.0}, "weights for sources that do not exist: aa .*did you mean 'a'"),
        ({"a": -1.0}, "weights must be finite, not negative"),
        ({"a": 0.0}, "not all 0"),
    ],
)
def test_a_bad_change_is_refused_and_changes_nothing(
    recipe: Recipe, weights: dict[str, float], message: str
) -> None:
    feed = Feed(recipe)
    before = feed.state_dict()
    with pytest.raises(ConfigError, match=message):
        feed.change_weights(weights)
    assert feed.state_dict() == before


def test_weights_cannot_be_changed_before_an_earlier_change(recipe: Recipe) -> None:
    feed = changed(recipe)
    feed.step = 7
    with pytest.raises(ConfigError, match="shares can only be changed after the last change"):
        feed.change_weights({"a": 1})


@pytest.mark.parametrize(
    "changes",
    [
        None,
        [],
        7,
        "?",
        "AAAA",
        pack_changes([(1, (1.0, 0.0))])[:-4],
        pack_changes([(1, (1.0, 0.0, 0.0))]),
        pack_changes([(1, (1.0,))]),
        pack_changes([(1, (0.0, 0.0))]),
        pack_changes([(1, (-1.0, 2.0))]),
        pack_changes([(1, (float("nan"), 2.0))]),
        pack_changes([(2, (1.0, 0.0)), (1, (0.0, 1.0))]),
        base64.b64encode(zlib.compress(bytes(2**28 + 24))).decode(),
    ],
)
def test_a_state_that_makes_no_sense_is_refused_and_changes_nothing(
    recipe: Recipe, changes: object
) -> None:
    feed = changed(recipe)
    before = feed.state_dict()
    with pytest.raises(ConfigError):
        feed.load_state_dict({**before, "changes": changes})
    assert feed.state_dict() == before
    assert len(feed.order.eras) == 1 + len(feed.changes)


@pytest.mark.parametrize("state", [None, [], "7"])
def test_what_is_no_state_is_refused(recipe: Recipe, state: object) -> None:
    with pytest.raises(ConfigError, match="unknown version of a feed's state"):
        Feed(recipe).load_state_dict(state)  # type: ignore[arg-type]
