"""A setting is declared once: help, checks and the identity all come from its field."""

from __future__ import annotations

import argparse
import inspect
import pydoc
import typing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
from mypy import api

from tokenreel.cli.flags import add_flags
from tokenreel.config.hints import choices_of
from tokenreel.config.keywords import takes_settings
from tokenreel.config.settings import (
    check_settings,
    declared,
    declares_settings,
    identity_of,
    optional,
    setting,
)
from tokenreel.errors import ConfigError
from tokenreel.feed import recipe
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.layouts.open_store import LAYOUTS
from tokenreel.rows import kinds
from tokenreel.rows.packing import METHODS
from tokenreel.rows.segments import TRUNCATIONS
from tokenreel.store.file_arrays import MODES

WRONG = """
from tokenreel.feed.recipe import Phase, Recipe, Source

right = Source(name="a", path="a", rows="packed", truncation="split", packing="best_fit")
Recipe(seq_len=8, global_batch_size=4, sources=[right], phases=[Phase(start_step=1, weights={})])
Source(name="a", path="a", rows="pakced")
Source(name="a", path="a", mode="aio")
Source(name="a", path="a", layout="megatorn")
Source(name="a", pth="a", path="a")
Recipe(seq_len=8, batch_size=4, global_batch_size=4, sources=[right])
Phase(start_step=1)
"""


@pytest.mark.parametrize("kind", [Recipe, Source, Phase])
def test_help_says_of_each_setting_what_it_means_accepts_and_its_default(kind: Any) -> None:
    said = pydoc.plain(pydoc.render_doc(kind))
    words = " ".join(said.replace("|", " ").split())
    for item in fields(kind):
        assert f"{item.name}: " in words
        assert item.metadata["meaning"] in words
        for choice in choices_of(typing.get_type_hints(kind)[item.name]):
            assert repr(choice) in words
    assert max(len(line) for line in kind.__doc__.splitlines()) <= 100


def test_help_is_written_for_people() -> None:
    assert "steps: a whole number >= 1 or None; default None\n" in str(Recipe.__doc__)
    assert "seq_len: a whole number >= 1; required\n" in str(Recipe.__doc__)
    kinds_in_words = "'windows', 'document_windows', 'episodes', 'packed', 'prompts' or 'pairs'"
    assert f"rows: {kinds_in_words}; default 'windows' " in " ".join(str(Source.__doc__).split())


def test_a_type_checker_refuses_wrong_choices_and_keywords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(WRONG)
    # What declares the recipe is read with it: following every import would take minutes.
    files = [str(program), str(recipe.__file__), str(kinds.__file__)]
    options = ["--follow-imports=skip", "--explicit-package-bases", "--config-file="]
    monkeypatch.setenv("MYPYPATH", str(Path(str(recipe.__file__)).parents[2]))
    said, _, _ = api.run([*options, f"--cache-dir={tmp_path}", *files])
    lines = {int(line.split(":")[1]): line for line in said.splitlines() if "error:" in line}
    assert sorted(lines) == [6, 7, 8, 9, 10, 11], said
    assert "Literal['windows', 'document_windows', 'episodes', 'packed'" in lines[6]
    assert 'Unexpected keyword argument "pth"' in lines[9]
    assert 'Unexpected keyword argument "batch_size"' in lines[10]
    assert 'Missing named argument "weights"' in lines[11]


def test_the_choices_of_a_recipe_are_those_that_the_rooms_know() -> None:
    assert set(choices_of(recipe.Truncation)) == set(TRUNCATIONS)
    assert set(choices_of(recipe.Packing)) == set(METHODS)
    assert set(choices_of(recipe.Mode)) == set(MODES)
    assert choices_of(recipe.Layout) == tuple(module.NAME for module in LAYOUTS)


@declares_settings
@dataclass(frozen=True, kw_only=True)
class Paint:
    """What is painted."""

    coats: int = field(default=1, metadata=setting("how many layers", least=1))
    colours: typing.Sequence[str] = field(default=(), metadata=setting("names", identity=False))

    def __post_init__(self) -> None:
        check_settings(self, owner="the wall")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coats": 0}, "bad coats of the wall (expected >= 1, got 0)"),
        ({"coats": 1.0}, "bad coats of the wall (expected a whole number, got 1.0)"),
        ({"coats": None}, "bad coats of the wall (expected a whole number, got None)"),
        ({"colours": "red"}, "(expected a list, each a string, got 'red')"),
        ({"colours": ["red", 3]}, "(expected a list, each a string, got ['red', 3])"),
        ({"colors": ["red"]}, "Paint has no setting 'colors'; did you mean 'colours'?"),
        ({"xyzzy": 1}, "Paint has no setting 'xyzzy'; known are coats, colours"),
    ],
)
def test_one_line_of_a_field_is_its_check(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Paint(**settings)
    assert message in str(caught.value)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is done; `coats` is declared by Paint, and None leaves it to that."""

    wall: str = field(metadata=setting("which wall"))
    share: float = declared(0.5, "how much of it (default: half)", least=0, below=1, group="How")
    speed: float = declared(1.0, "metres a second", above=0, group="How", identity=False)
    tin: int | str = declared(1000, 'size of a tin, such as "2K"', size=True, group="How")
    coats: int | None = optional(Paint, "coats", group="How")

    def __post_init__(self) -> None:
        check_settings(self)


@takes_settings(Job)
def paint(job: Job) -> Job:
    """Paint a wall. The settings:"""
    return job


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 1}, "bad share (expected >= 0 and < 1, got 1)"),
        ({"share": -0.1}, "bad share (expected >= 0 and < 1, got -0.1)"),
        ({"share": float("nan")}, "bad share (expected >= 0 and < 1, got nan)"),
        ({"speed": 0}, "bad speed (expected > 0, got 0)"),
        ({"tin": "2 buckets"}, "bad tin (expected more than 0 bytes, such as"),
        ({"tin": True}, "bad tin (expected more than 0 bytes, such as"),
        ({"coats": 0}, "bad coats (expected >= 1, got 0)"),
        ({"shear": 0.1}, "paint() has no keyword 'shear'; did you mean 'share'?"),
    ],
)
def test_a_declared_setting_is_a_keyword_that_checks_itself(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        paint(wall="north", **settings)
    assert message in str(caught.value)


def test_a_function_of_settings_says_what_it_needs_and_takes() -> None:
    with pytest.raises(TypeError, match=r"^paint\(\) needs wall$"):
        paint()  # type: ignore[call-arg]
    assert paint(wall="north", tin="2K") == Job(wall="north", tin=2000)
    assert list(inspect.signature(paint).parameters) == ["wall", "share", "speed", "tin", "coats"]
    said = inspect.getdoc(paint)
    assert said is not None
    assert said.startswith("Paint a wall. The settings:\n\nwall\n    which wall\n\nHow:\n\nshare\n")
    assert said.endswith("coats\n    how many layers")


def test_a_declared_setting_is_a_flag() -> None:
    parser = argparse.ArgumentParser()
    assert add_flags(parser, Job, left_out=("wall",), share=0.25) == [
        *("share", "speed", "tin", "coats")
    ]
    assert vars(parser.parse_args(["--tin", "2K"])) == {
        "share": 0.25,
        "speed": 1.0,
        "tin": 2000,
        "coats": None,
    }
    assert "how:\n  --share NUMBER" in parser.format_help()


def test_the_identity_leaves_out_what_no_batch_depends_on() -> None:
    assert identity_of(Paint(coats=2, colours=["red"])) == {"coats": 2}
