"""Dataclasses from mappings: sections, overrides, nearest keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tokenreel.config.load import STRICT, load
from tokenreel.config.overrides import override
from tokenreel.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    __pydantic_config__: ClassVar[object] = STRICT

    kind: str = "a"
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    __pydantic_config__: ClassVar[object] = STRICT

    rate: float
    inner: Inner = field(default_factory=Inner)
    items: list[Inner] = field(default_factory=list)
    flag: bool = False

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ConfigError("bad rate", expected=">= 0", actual=self.rate)


def test_a_mapping_becomes_nested_dataclasses() -> None:
    table = {"rate": 1, "inner": {"size": 3}, "items": [{"kind": "b"}]}
    wanted = Outer(rate=1.0, inner=Inner(size=3), items=[Inner(kind="b")])
    assert load(Outer, table) == wanted


def test_overrides_reach_into_tables_that_are_not_there() -> None:
    assert load(Outer, {"rate": 1}, overrides=["inner.kind=x", "flag=true"]) == Outer(
        rate=1.0, inner=Inner(kind="x"), flag=True
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "'rate' is missing"),
        ({"rate": -1}, r"bad rate \(expected >= 0, got -1.0\)"),
        ({"rate": "1"}, r"bad rate \(expected a valid number, got '1'\)"),
        ({"rate": 1, "inner": {"siez": 2}}, "unknown key 'inner.siez'; did you mean 'size'"),
        ({"rate": 1, "items": [{}, {"knid": "b"}]}, "unknown key 'items.1.knid'; did you mean"),
        ({"rate": 1, "zzz": 2}, "unknown key 'zzz'; known are flag, inner, items, rate"),
        ({"rate": 1, "flag": 1}, r"bad flag \(expected a valid boolean, got 1\)"),
        ({"rate": 1, "inner": {"size": object()}}, "holds a value that no setting has"),
    ],
)
def test_what_does_not_fit_is_named(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(Outer, table)


@pytest.mark.parametrize(
    "text", ["<config><data><rate>2</rate></data></config>", "<data><rate>2</rate></data>"]
)
def test_a_section_is_found_below_the_root_or_is_the_root(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.xml"
    path.write_text(text)
    assert load(Outer, path, section="data", overrides=["data.flag=true"]) == Outer(
        rate=2.0, flag=True
    )


def test_a_section_of_a_mapping_is_taken() -> None:
    assert load(Outer, {"model": {}, "data": {"rate": 1}}, section="data") == Outer(rate=1.0)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.xml", "<config><data/></config>"), ("a.xml", "<data></data>"), ("a.yaml", "data:\n")],
)
def test_an_empty_section_is_a_section(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert load(Inner, path, section="data") == Inner()
    assert load(Inner, path, section="data", overrides=["data.kind=b"]) == Inner(kind="b")


@pytest.mark.parametrize(
    ("name", "text"), [("a.xml", "<config><data>1</data></config>"), ("a.yaml", 'data: ""\n')]
)
def test_a_plain_value_is_no_section(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match="has no section 'data'"):
        load(Inner, path, section="data")


def test_a_section_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[model]\nrate = 1\n")
    with pytest.raises(ConfigError, match=r"config.toml: has no section 'data' \(got .'model'.\)"):
        load(Outer, path, section="data")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("a=1", 1),
        ("a=1.5", 1.5),
        ("a=true", True),
        ('a="1"', "1"),
        ("a=[1, 2]", [1, 2]),
        ("a=some text", "some text"),
        ("a=", ""),
        ("a=x=y", "x=y"),
        ("a=1\nb = 2", "1\nb = 2"),
    ],
)
def test_a_value_is_toml_or_text(setting: str, value: object) -> None:
    assert override({}, [setting]) == {"a": value}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed", r"not a setting \(expected KEY=VALUE, got 'seed'\)"),
        ("a..b=1", "not a setting"),
        ("seed.x=1", r"leads through a plain value \(expected a table, got 1\)"),
        ("items.c.x=1", r"names no item: 'c' \(expected b or a number below 1\)"),
        ("items.1.x=1", "names no item: '1'"),
    ],
)
def test_a_setting_that_leads_nowhere_is_named(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override({"seed": 1, "items": [{"name": "b"}]}, [setting])
