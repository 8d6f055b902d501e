"""Settings given beside a file: `seed=3`, `sources.web.weight=0.5`, `data.tokenizer.kind=byte`.

A dotted path leads through tables; an item of a list is named by its number or, if it
has one, by its `name`. A value is read as TOML, and as text where it is not valid TOML.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from tokenreel.errors import ConfigError


def override(table: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return the table with these settings in it; the given table stays as it is.

    >>> override({"seed": 1, "sources": [{"name": "web"}]}, ["seed=2", "sources.web.weight=0.5"])
    {'seed': 2, 'sources': [{'name': 'web', 'weight': 0.5}]}
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not all(path.split(".")):
            raise ConfigError("not a setting", expected="KEY=VALUE", actual=repr(setting))
        table = _put(table, path.split("."), _parse(text), setting)
    return table


def _put(level: Any, keys: list[str], value: Any, setting: str) -> Any:
    if not keys:
        return value
    if isinstance(level, dict):
        return {**level, keys[0]: _put(level.get(keys[0], {}), keys[1:], value, setting)}
    if isinstance(level, list):
        place = _item(level, keys[0], setting)
        return [*level[:place], _put(level[place], keys[1:], value, setting), *level[place + 1 :]]
    raise ConfigError(
        "a setting leads through a plain value", where=setting, expected="a table", actual=level
    )


def _item(items: list[Any], key: str, setting: str) -> int:
    names = [str(item.get("name", "")) if isinstance(item, dict) else "" for item in items]
    if key in names:
        return names.index(key)
    if key.isdecimal() and int(key) < len(items):
        return int(key)
    known = [name for name in names if name]
    raise ConfigError(
        f"a setting names no item: {key!r}",
        where=setting,
        expected=f"{' or '.join([*known, ''])}a number below {len(items)}",
    )


def _parse(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text
