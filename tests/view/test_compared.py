"""Two targets: what differs is what the comparison of both finds, in bounded pieces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.view.looking import feed_of, opened, write_recipe

from tokenreel.errors import ConfigError
from tokenreel.inspect.comparison import compare
from tokenreel.inspect.step_comparison import compare_step
from tokenreel.view import compared


def test_two_recipes_are_told_apart_with_the_first_step_that_differs(recipe: Path) -> None:
    answers = opened(recipe, recipe, overrides=["phases.0.start_step=25"])
    found = answers.answer("api/compare")
    a, b = (subject.feed for subject in answers.subjects)
    assert found == {"titles": ["recipe.toml"] * 2, **compare(a, b).as_dict()}
    assert found["first_step"] >= 20
    assert answers.answer(f"api/compare/step/{found['first_step'] - 1}")["same"] is True
    assert answers.answer(f"api/compare/step/{found['first_step']}")["same"] is False
    assert answers.answer("api/compare") is found  # found once


def test_each_target_is_asked_by_its_number(recipe: Path) -> None:
    answers = opened(recipe, recipe, overrides=["seed=8"])
    first, second = (answers.answer("api/step/3", [("target", n)]) for n in ("0", "1"))
    assert first != second
    assert first == opened(recipe).answer("api/step/3")
    titles = [item["fingerprint"] for item in answers.answer("api/target")["targets"]]
    assert titles[0] != titles[1]


@pytest.mark.parametrize("slots", [1, 200, 10**9])
def test_a_large_step_is_compared_some_rows_at_a_time(
    recipe: Path, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compared, "SLOTS_AT_ONCE", slots)
    answers = opened(recipe, recipe, overrides=["seed=8"])
    a, b = (subject.feed for subject in answers.subjects)
    assert answers.answer("api/compare/step/5") == compare_step(a, b, 5).as_dict()


def test_two_stores_are_compared_document_by_document(stores: Path) -> None:
    found = opened(stores / "texts", stores / "chats").answer("api/compare")
    assert (found["kind"], found["same"]) == ("stores", False)
    assert "split train differs" in found["why"]
    assert opened(stores / "texts", stores / "texts").answer("api/compare")["same"] is True


def test_the_state_of_a_run_is_compared_with_its_recipe(stores: Path, tmp_path: Path) -> None:
    path = write_recipe(
        tmp_path / "r.toml",
        "seq_len = 160\nglobal_batch_size = 4\n",
        {"name": "s", "path": str(stores / "chats"), "rows": "packed"},
    )
    feed = feed_of(stores, "packed chats")
    feed.step = 7
    (tmp_path / "state.json").write_text(json.dumps(feed.state_dict()))
    answers = opened(path, tmp_path / "state.json")
    assert answers.answer("api/compare")["same"] is True
    assert answers.answer("api/compare/step/7")["same"] is True


def test_one_target_has_nothing_to_compare_with(recipe: Path) -> None:
    for path in ("api/compare", "api/compare/step/0"):
        with pytest.raises(ConfigError, match=r"nothing to compare with.*name both"):
            opened(recipe).answer(path)
