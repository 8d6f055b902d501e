"""The last thing that is allowed, and the first that is not: rows, steps, changes, padding."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.dropin.document_heads import DocumentHeads
from tokenreel.dropin.id_rows import IdRows
from tokenreel.errors import ConfigError, VocabularyError
from tokenreel.feed import state
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.feed.run_end import Ending
from tokenreel.feed.state import check_room, pack_changes, unpack_changes
from tokenreel.testing import equal


@pytest.fixture
def one_pass(tmp_path: Path) -> Feed:
    """One pass over ten rows of eight slots in steps of four: the last step has two."""
    write_store(tmp_path / "s", [81])
    return Feed(recipe_of(Source(name="s", path=tmp_path / "s"), passes=1))


def test_each_row_of_a_step_can_be_asked_for_and_none_behind_the_last(one_pass: Feed) -> None:
    for step, num_rows in ((0, 4), (2, 2)):
        whole = one_pass.batch(step)
        rows = one_pass.rows(step, range(num_rows))
        assert rows.input_ids.shape == (num_rows, 8)
        assert np.array_equal(rows.input_ids, whole.input_ids[:num_rows])
        for seats in ([num_rows], [0, num_rows], [-1], [0, -1]):
            with pytest.raises(ConfigError) as caught:
                one_pass.rows(step, seats)
            assert str(caught.value) == f"no such row in the step (expected 0 to {num_rows - 1})"
    assert one_pass.rows(0, np.empty(0, np.int64)).input_ids.shape == (0, 8)
    assert equal(one_pass.rows(0, [1, 1]).labels[0], one_pass.batch(0).labels[1])


@pytest.mark.parametrize("seats", [[0.0], [[0]], np.array(0), [True]])
def test_seats_are_whole_numbers_in_a_row(one_pass: Feed, seats: object) -> None:
    with pytest.raises(ConfigError, match=r"bad seats \(expected whole numbers, \[n\]"):
        one_pass.rows(0, seats)  # type: ignore[arg-type]


def test_epochs_are_told_from_the_first_step_to_behind_the_last(one_pass: Feed) -> None:
    told = [one_pass.epoch_of(step)["s"] for step in range(5)]
    assert told == [0.0, 0.4, 0.8, 1.0, 1.0]
    with pytest.raises(ConfigError, match=r"bad step \(expected >= 0, got -1\)"):
        one_pass.epoch_of(-1)


def test_there_is_a_last_step_and_none_behind_it(one_pass: Feed) -> None:
    assert len(one_pass) == 3
    for ask in (one_pass.batch, one_pass.locate, one_pass.denominators):
        ask(0), ask(2)
        for step in (-1, 3):
            with pytest.raises(ConfigError):
                ask(step)


def test_as_many_changes_as_a_state_can_hold_are_packed_and_read_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = [(step, (0.5, 0.1 * step)) for step in range(1, 6)]
    monkeypatch.setattr(state, "MAX_CHANGES_BYTES", 5 * 8 * 3)  # a step and two weights each
    check_room(5, num_sources=2)
    assert unpack_changes(pack_changes(changes), num_sources=2) == changes
    with pytest.raises(ConfigError) as caught:
        check_room(6, num_sources=2)
    assert str(caught.value) == (
        "the weights of 2 sources were changed too often for a state (expected at most 5 changes, "
        "got 6); change them every so many steps"
    )
    with pytest.raises(ConfigError, match="bad changes in a feed's state"):
        unpack_changes(pack_changes([*changes, (6, (0.5, 0.5))]), num_sources=2)


@pytest.mark.parametrize("weight", [float("inf"), float("nan"), -0.5])
def test_a_state_with_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="bad changes in a feed's state"):
        unpack_changes(pack_changes([(1, (weight, 1.0))]), num_sources=2)


def test_weights_cannot_be_changed_more_often_than_a_state_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        write_store(tmp_path / name, [81])
    feed = Feed(recipe_of(*(Source(name=name, path=tmp_path / name) for name in "ab")))
    monkeypatch.setattr(state, "MAX_CHANGES_BYTES", 2 * 8 * 3)
    for step in (0, 1):  # at the very beginning too
        feed.step = step
        feed.change_weights({"a": 1, "b": 2 + step})
    feed.step = 2
    with pytest.raises(ConfigError, match="changed too often"):
        feed.change_weights({"a": 1, "b": 9})
    feed.load_state_dict(feed.state_dict())


def test_the_largest_id_of_the_dtype_pads_and_the_next_does_not(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [3], first_token=7)
    feed = Feed(recipe_of(Source(name="s", path=tmp_path / "s"), seq_len=4))
    split = feed.stores[0]["train"]
    pieces = DocumentHeads(split, 4).pieces(np.arange(1))
    inputs, labels = IdRows(split, 4).gather(pieces, pad_id=65_535)
    assert inputs.tolist() == [[7, 8, 9, 65_535]] and labels.tolist() == [[8, 9, 65_535, 65_535]]
    with pytest.raises(VocabularyError, match="does not fit the token dtype"):
        IdRows(split, 4).gather(pieces, pad_id=65_536)


@pytest.mark.parametrize(("steps", "said"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps")])
def test_an_ending_counts_its_steps(steps: int, said: str) -> None:
    assert str(Ending(steps=steps, unshown={})) == f"the run ends after {said}: every row was shown"


@pytest.mark.parametrize("steps", [None, 1, 2, 3])
def test_a_run_that_ends_with_rows_unshown_says_so_and_one_that_is_stopped_before_does_not(
    tmp_path: Path, steps: int | None
) -> None:
    write_store(tmp_path / "s", [81])  # ten rows: two steps of four, and two rows that are left
    source = Source(name="s", path=tmp_path / "s", max_epochs=1)
    feed = Feed(recipe_of(source, steps=steps))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert len(list(feed)) == min(steps or 2, 2)
    expected = "the run ends after 2 steps: source 's' runs out in the next; rows not shown: 2 of"
    assert [str(warning.message)[: len(expected)] for warning in said] == (
        [] if steps == 1 else [expected]
    )
