"""A frozen dataclass from a file or a mapping, each value checked, each key known.

A dataclass for files says `__pydantic_config__ = STRICT`, so that a key it does not
know is an error. Costs the import of pydantic, about 0.1 s, once.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeVar

from tokenreel.config.config_file import Table, read_table
from tokenreel.config.hints import choices_of, did_you_mean
from tokenreel.config.overrides import override
from tokenreel.errors import ConfigError, MissingExtraError

Kind = TypeVar("Kind")
STRICT: Any = {"extra": "forbid"}
UNKNOWN = "unexpected_keyword_argument"  # as pydantic calls it


def load(
    kind: type[Kind],
    source: str | PathLike[str] | Mapping[str, Any],
    *,
    section: str | None = None,
    overrides: Sequence[str] = (),
) -> Kind:
    """Return the dataclass that a file or a mapping describes.

    `section`: the table of the file that is meant, where others may stand beside it.
    """
    table = read_section(source, section, overrides=overrides)
    return make(kind, table.content, where=table.where, typed=table.typed)


def read_section(
    source: str | PathLike[str] | Mapping[str, Any],
    section: str | None,
    *,
    overrides: Sequence[str] = (),
) -> Table:
    """Return a section of a file or a mapping, or all of it, with the overrides in it."""
    if isinstance(source, Mapping):
        table = Table(content=dict(source), where=None)
    else:
        table = read_table(source)
    content = table.content
    if section is not None and table.root == section:
        content = {section: content}  # the root of an XML file may be the section itself
    elif section in content and content[section] == ("" if table.root else None):
        content = {**content, section: {}}  # <training/>, or "training:" in YAML
    content = override(content, overrides)
    if section is not None:
        content = _section(content, section, table)
    return dataclasses.replace(table, content=content)


def _section(content: dict[str, Any], name: str, table: Table) -> dict[str, Any]:
    found = content.get(name)
    if not isinstance(found, dict):
        raise ConfigError(f"has no section {name!r}", where=table.where, actual=sorted(content))
    return found


def make(kind: type[Kind], content: Mapping[str, Any], *, where: Any, typed: bool = True) -> Kind:
    """Return the dataclass of a table; `typed` False converts text to what is declared."""
    try:
        from pydantic import TypeAdapter, ValidationError
    except ImportError as error:
        raise MissingExtraError("pydantic", extra="all", purpose="reading settings") from error
    try:
        if not typed:
            return TypeAdapter(kind).validate_python(content)
        # As JSON, because only there strict types and nested tables go together.
        return TypeAdapter(kind).validate_json(_as_json(content, where), strict=True)
    except ValidationError as error:
        # A misspelt key is missing too: the spelling is what helps.
        first = min(error.errors(), key=lambda item: item["type"] != UNKNOWN)
        # What __post_init__ raises is a ValueError, which pydantic keeps as the cause.
        ours = first.get("ctx", {}).get("error")
        if isinstance(ours, ConfigError):
            raise ConfigError(
                ours.what,
                where=ours.where or where,
                expected=ours.expected,
                actual=ours.actual,
                remedy=ours.remedy,
            ) from None
        raise _translated(first, kind, where) from error


def _as_json(content: Mapping[str, Any], where: Any) -> str:
    try:
        return json.dumps(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"holds a value that no setting has: {error}", where=where) from error


def _translated(error: Any, kind: type, where: Any) -> ConfigError:
    """Return the ConfigError for an error of pydantic."""
    found = list(error["loc"])
    if not found:  # all of it: half a character somewhere, or a list where a table should be
        return ConfigError(f"cannot be used: {error['msg']}", where=where)
    place = [part for part in found if isinstance(part, int) or part.isidentifier()] or found
    path = ".".join(map(str, place))
    owner = _kind_at(kind, place[:-1])
    known = [item.name for item in dataclasses.fields(owner)] if owner else []
    if error["type"] == UNKNOWN:
        remedy = did_you_mean(place[-1], known) or f"known are {', '.join(sorted(known))}"
        return ConfigError(f"unknown key {path!r}", where=where, remedy=remedy)
    if error["type"] == "missing":
        return ConfigError(f"{path!r} is missing", where=where)
    expected = error["msg"].removeprefix("Input should be ")
    return ConfigError(
        f"bad {path}",
        where=where,
        expected=expected,
        actual=repr(error["input"]),
        remedy=did_you_mean(error["input"], _choices_at(owner, place[-1])),
    )


def _choices_at(owner: type | None, name: str | int) -> tuple[Any, ...]:
    """Return the values that a setting may have, where they are few enough to be named."""
    return choices_of(typing.get_type_hints(owner).get(str(name))) if owner else ()


def _kind_at(kind: Any, place: Sequence[str | int]) -> type | None:
    """Return the dataclass that stands at a place of a dataclass."""
    for part in place:
        if isinstance(part, str):
            kind = typing.get_type_hints(kind).get(part) if dataclasses.is_dataclass(kind) else None
        else:
            kind = next(iter(typing.get_args(kind)), None)
        if isinstance(kind, types.UnionType):
            kind = next((item for item in typing.get_args(kind) if item is not type(None)), None)
    return kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None
