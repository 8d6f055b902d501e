"""A configuration file as a table: nested mappings, lists and plain values.

TOML and YAML say what is a number; XML knows only text, which is why its table is
converted later. In XML an element is a key, its children are a table, and
an element whose children are all named like it without its last "s" is a list:

    <sources><source>…</source><source>…</source></sources>
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from xml.parsers import expat

from tokenreel.config.yaml import MAX_DEPTH, parse_yaml
from tokenreel.errors import ConfigError, FormatError, NoFileError

MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a file says; `root` is the name of the element around it all, in XML."""

    content: dict[str, Any]
    where: Path | None
    root: str | None = None

    @property
    def typed(self) -> bool:
        """Whether values have types; in XML every value is text."""
        return self.root is None


def read_table(path: str | PathLike[str]) -> Table:
    """Read a file by its suffix."""
    place = Path(path)
    parse = PARSERS.get(place.suffix.lower())
    if parse is None:
        raise ConfigError(
            "unknown kind of configuration",
            where=place,
            expected=", ".join(PARSERS),
            actual=place.suffix or "no suffix",
        )
    content = _content(place, parse)
    if parse is not _parse_xml:
        return Table(content=content, where=place)
    ((root, below),) = content.items()
    return Table(content=below or {}, where=place, root=root)


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file says, whatever its suffix."""
    return _content(path, _parse_toml)


def _content(place: Path, parse: Callable[[bytes, Path], dict[str, Any]]) -> dict[str, Any]:
    try:
        content = parse(_read(place), place)
        _require_shallow(content, place)
    except ConfigError:
        raise
    # ValueError: no TOML, no UTF-8, an integer of a million digits, a path that cannot be one.
    except (OSError, ValueError, RecursionError, FormatError) as error:
        said = error.what if isinstance(error, FormatError) else error
        kind = NoFileError if isinstance(error, FileNotFoundError) else ConfigError
        raise kind(f"cannot be read: {said}", where=place) from error
    return content


def _read(path: Path) -> bytes:
    """Return the bytes of a regular file; reading a pipe would wait for its writer."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ConfigError("not a regular file", where=path)
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError("too large for a configuration", where=path, expected="<= 1 MiB")
    return data


def _parse_toml(data: bytes, where: Path) -> dict[str, Any]:
    return tomllib.loads(data.decode("utf-8-sig"))


def _require_shallow(content: Any, where: Path) -> None:
    """Raise ConfigError where tables or lists lie too deep for what walks through them later."""
    level = [content]
    for _ in range(MAX_DEPTH):
        tables = [item.values() if isinstance(item, dict) else item for item in level]
        level = [item for table in tables for item in table if isinstance(item, (dict, list))]
        if not level:
            return
    raise ConfigError("nested too deeply", where=where, expected=f"{MAX_DEPTH} levels at most")


def _parse_xml(data: bytes, where: Path) -> dict[str, Any]:
    """Return the content of the root element, under its name."""
    parser = expat.ParserCreate()
    top = _Element("")
    open_elements = [top]

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if attributes:
            raise _refusal(parser, where, f"<{tag}> has attributes", "elements only")
        if len(open_elements) > MAX_DEPTH:
            raise _refusal(parser, where, f"<{tag}> lies too deep", f"{MAX_DEPTH} levels at most")
        element = _Element(tag)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(tag: str) -> None:
        open_elements.pop()

    def text(data: str) -> None:
        open_elements[-1].text += data

    def doctype(*declared: object) -> None:
        raise _refusal(parser, where, "a DOCTYPE is refused, always", "a document without one")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text, doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ConfigError(f"cannot be read: not XML: {error}", where=where) from error
    return _as_table(top, where)


class _Element:
    """An element while it is read."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.text = ""
        self.children: list[_Element] = []


def _value(element: _Element, where: Path) -> Any:
    if not element.children:
        return element.text.strip()
    if element.text.strip():
        raise ConfigError(f"<{element.tag}> mixes text and elements", where=where)
    if all(f"{child.tag}s" == element.tag for child in element.children):
        return [_value(child, where) for child in element.children]
    return _as_table(element, where)


def _as_table(element: _Element, where: Path) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for child in element.children:
        if child.tag in table:
            raise ConfigError(f"<{child.tag}> stands twice in <{element.tag}>", where=where)
        table[child.tag] = _value(child, where)
    return table


def _refusal(parser: Any, where: Path, what: str, expected: str) -> ConfigError:
    return ConfigError(what, where=f"{where}, line {parser.CurrentLineNumber}", expected=expected)


PARSERS: Mapping[str, Callable[[bytes, Path], dict[str, Any]]] = {
    ".toml": _parse_toml,
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".xml": _parse_xml,
}
