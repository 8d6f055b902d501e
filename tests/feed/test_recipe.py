"""Recipes: what a file may say, and how it is told that it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.feed.making import write_store

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.testing import equal

TOML = """
seq_len = 8
global_batch_size = 4
seed = 7

[[sources]]
name = "web"
path = "stores/web"
weight = 0.7

[[sources]]
name = "chat"
path = "stores/chat"
rows = "episodes"
weight = 0.3
truncation = "keep_last"

[[phases]]
start_step = 10
weights = {web = 0.5, chat = 0.5}
ramp_steps = 2
"""
TEXT: Any = "x"
SOURCE = Source(name="web", path="web")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_store(tmp_path / "stores" / "web", [100])
    write_store(tmp_path / "stores" / "chat", [9, 12], first_token=1000)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_file_says_what_python_says_with_paths_from_its_folder(folder: Path) -> None:
    feed = Feed(written(folder, TOML))
    stores = folder / "stores"
    same = Recipe(
        seq_len=8,
        global_batch_size=4,
        seed=7,
        sources=[
            Source(name="web", path=stores / "web", weight=0.7),
            Source(
                name="chat",
                path=stores / "chat",
                rows="episodes",
                weight=0.3,
                truncation="keep_last",
            ),
        ],
        phases=[Phase(start_step=10, weights={"web": 0.5, "chat": 0.5}, ramp_steps=2)],
    )
    assert feed.fingerprint == Feed(same).fingerprint
    assert equal(feed.batch(12), Feed(same).batch(12))
    feed.load_state_dict(Feed(str(written(folder, TOML))).state_dict())


def test_an_absolute_path_stays_what_it_is(folder: Path) -> None:
    text = TOML.replace("stores/web", str(folder / "stores" / "web"))
    assert Recipe.read(written(folder, text)).sources[0].path == str(folder / "stores" / "web")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed", "sead", "unknown key 'sead'; did you mean 'seed'?"),
        ("weight = 0.7", "wieght = 0.7", "unknown key 'sources.0.wieght'; did you mean 'weight'?"),
        ("ramp_steps", "ramp_stepz", "unknown key 'phases.0.ramp_stepz'; did you mean"),
        ("seed", "xyzzy", "unknown key 'xyzzy'; known are global_batch_size, grad_accum, "),
        ('path = "stores/web"', "", "'sources.0.path' is missing"),
        ("seq_len = 8", "", "'seq_len' is missing"),
        (
            "seq_len = 8",
            'seq_len = "8"',
            "bad seq_len (expected a valid integer, got '8')",
        ),
        ("seed = 7", "seed = 7.5", "bad seed (expected a valid integer, got 7.5)"),
        ("seed = 7", "seed = true", "bad seed (expected a valid integer, got True)"),
        ("weight = 0.7", 'weight = "a"', "bad sources.0.weight (expected a valid number, got 'a')"),
        ('name = "web"', "name = 3", "bad sources.0.name (expected a valid string, got 3)"),
        ("start_step = 10", "start_step = -1", "bad start_step of a phase (expected >= 0, got -1)"),
        ("weights = {web = 0.5, chat = 0.5}", "weights = 3", "bad phases.0.weights (expected "),
        (
            'rows = "episodes"',
            'rows = "episode"',
            "bad sources.1.rows (expected 'windows', 'document_windows', 'episodes', 'packed', "
            "'prompts' or 'pairs', got 'episode'); did you mean 'episodes'?",
        ),
        ("seq_len = 8", "seq_len = [", "cannot be read: "),
        ("[[phases]]", "[phases]", "bad phases (expected a valid array"),
    ],
)
def test_a_wrong_file_is_told_what_is_wrong_and_where(
    folder: Path, old: str, new: str, message: str
) -> None:
    path = written(folder, TOML.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        Recipe.read(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: "):
        Feed(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seq_len": 0}, r"bad seq_len \(expected >= 1, got 0\)"),
        ({"global_batch_size": -4}, r"bad global_batch_size \(expected >= 1, got -4\)"),
        ({"steps": 0}, r"bad steps \(expected >= 1, got 0\)"),
        ({"grad_accum": 3}, r"does not divide into microbatches \(expected a multiple of 3, got 4"),
        ({"sources": []}, "a recipe needs at least one source"),
        ({"sources": [SOURCE, SOURCE]}, r"two sources have the same name \(got web, web\)"),
        ({"sources": [{"name": "web"}]}, r"bad sources \(expected a list of sources, got \[\{'na"),
        ({"batch_size": 4}, "no setting 'batch_size'; did you mean 'global_batch_size'"),
        ({"sources": "web"}, r"bad sources \(expected a list of sources, got 'web'\)"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Recipe(**{"seq_len": 8, "global_batch_size": 4, "sources": [SOURCE], **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_epochs": 0}, r"bad max_epochs of source 'web' \(expected >= 1, got 0\)"),
        ({"name": ""}, "a source needs a name"),
        (
            {"mode": "aio"},
            r"bad mode of source 'web' \(expected 'mmap' or 'pread', got 'aio'\)$",
        ),
        ({"rows": "pakced"}, r"got 'pakced'\); did you mean 'packed'\?$"),
        ({"layout": "megatorn"}, r"got 'megatorn'\); did you mean 'megatron'\?$"),
        ({"truncation": "keep_frist"}, r"got 'keep_frist'\); did you mean 'keep_first'\?$"),
        ({"shuffle": 1}, r"bad shuffle of source 'web' \(expected True or False, got 1\)"),
        ({"weight": True}, r"bad weight of source 'web' \(expected a number, got True\)"),
        ({"wieght": 2}, r"Source has no setting 'wieght'; did you mean 'weight'\?$"),
        ({"packing": "best_fit"}, "packing does not concern its rows .*; leave packing out"),
        (
            {"truncation": "keep_last"},
            r"expected rows of episodes or packed or prompts or pairs, got",
        ),
        ({"rows": "packed", "min_tokens": 3}, r"expected rows of episodes, got packed"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Source(**{"name": "web", "path": "web", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"phases": [Phase(start_step=1, weights={"wbe": 1})]}, "do not exist: wbe"),
        ({"phases": [Phase(start_step=1, weights={"web": -1})]}, "must be finite, not negative"),
        ({"phases": [Phase(start_step=1, weights={"web": TEXT})]}, "must be finite, not negative"),
        ({"temperature": 0.0}, "bad temperature"),
        (
            {
                "phases": [
                    Phase(start_step=1, weights={"web": 1}, ramp_steps=5),
                    Phase(start_step=3, weights={"web": 1}),
                ]
            },
            "a phase begins before the ramp of the one before has ended",
        ),
    ],
)
def test_weights_that_make_no_sense_are_refused_at_start(
    folder: Path, settings: dict[str, Any], message: str
) -> None:
    source = Source(name="web", path=folder / "stores" / "web")
    with pytest.raises(ConfigError, match=message):
        Feed(Recipe(**{"seq_len": 8, "global_batch_size": 4, "sources": [source], **settings}))


def test_a_split_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    source = Source(name="web", path=folder / "stores" / "web", split="vla")
    with pytest.raises(ConfigError, match=r"no split 'vla' \(expected train\)"):
        Feed(Recipe(seq_len=8, global_batch_size=4, sources=[source]))
