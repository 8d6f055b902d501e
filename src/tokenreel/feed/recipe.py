"""The recipe: everything a batch depends on besides the stores themselves."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from tokenreel.errors import ConfigError

ROWS = ("windows", "document_windows", "episodes", "packed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A split of a store, and how rows are made of it.

    Settings that do not concern the kind of rows are left at None.
    """

    name: str
    path: str | PathLike[str]
    rows: str = "windows"
    weight: float = 1.0
    split: str = "train"
    shuffle: bool = True
    max_epochs: int | None = None
    truncation: str | None = None
    packing: str | None = None
    min_tokens: int | None = None
    layout: str | None = None
    dtype: str | None = None
    vocab_size: int | None = None
    eos_id: int | None = None
    mode: str = "mmap"

    def __post_init__(self) -> None:
        _check_types(self)
        if not self.name:
            raise ConfigError("a source needs a name")
        if self.rows not in ROWS:
            raise ConfigError(
                f"source {self.name!r}: unknown rows", expected=", ".join(ROWS), actual=self.rows
            )
        _refuse_foreign_settings(self)
        if self.max_epochs is not None and self.max_epochs < 1:
            raise ConfigError(
                f"source {self.name!r}: bad max_epochs", expected=">= 1", actual=self.max_epochs
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """From `start_step` on, other weights, reached in a straight line over `ramp_steps`."""

    start_step: int
    weights: Mapping[str, float]
    ramp_steps: int = 0

    def __post_init__(self) -> None:
        _check_types(self)
        for name in ("start_step", "ramp_steps"):
            if getattr(self, name) < 0:
                raise ConfigError(
                    f"bad {name} of a phase", expected=">= 0", actual=getattr(self, name)
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a run is fed with; batch_size counts the rows of one step over all ranks."""

    seq_len: int
    batch_size: int
    sources: Sequence[Source]
    seed: int = 0
    phases: Sequence[Phase] = ()
    temperature: float = 1.0
    accumulate: int = 1
    pad_id: int = 0
    steps: int | None = None

    def __post_init__(self) -> None:
        _check_types(self)
        for name in ("seq_len", "batch_size", "accumulate", "steps"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"bad {name}", expected=">= 1", actual=getattr(self, name))
        if not self.sources:
            raise ConfigError("a recipe needs at least one source")
        names = [source.name for source in self.sources]
        if len(set(names)) != len(names):
            raise ConfigError("two sources have the same name", actual=", ".join(names))
        if self.batch_size % self.accumulate:
            raise ConfigError(
                "the batch does not divide into microbatches",
                expected=f"a multiple of {self.accumulate}",
                actual=self.batch_size,
            )

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Recipe:
        """Read a TOML file with the same names as keys; paths count from its folder."""
        place = Path(path)
        try:
            content = tomllib.loads(place.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", where=place) from error
        sources = [_make(Source, item, place) for item in _tables(content, "sources", place)]
        sources = [replace(item, path=str(place.parent / item.path)) for item in sources]
        phases = [_make(Phase, item, place) for item in _tables(content, "phases", place)]
        return _make(cls, {**content, "sources": sources, "phases": phases}, place)


def _tables(content: dict[str, Any], name: str, where: Path) -> list[dict[str, Any]]:
    """Take the array of tables of this name out of the content."""
    tables = content.pop(name, [])
    if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
        raise ConfigError(f"bad {name}", where=where, expected=f"tables headed [[{name}]]")
    return tables


def _make(kind: Any, values: Mapping[str, Any], where: Path) -> Any:
    known = {item.name for item in fields(kind)}
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise ConfigError(
                f"unknown key {name!r} of {kind.__name__}",
                where=where,
                remedy=f"did you mean {near[0]!r}?" if near else f"known are {sorted(known)}",
            )
    needed = {
        item.name
        for item in fields(kind)
        if item.default is MISSING and item.default_factory is MISSING
    }
    missing = sorted(needed - set(values))
    if missing:
        raise ConfigError(f"{kind.__name__} lacks {', '.join(missing)}", where=where)
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(
            error.what,
            where=where,
            expected=error.expected,
            actual=error.actual,
            remedy=error.remedy,
        ) from None


# What a setting may be, by how its type is written above; a bool is no number.
KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "str | PathLike[str]": (str, PathLike),
    "bool": (bool,),
    "int": (Integral,),
    "float": (Real,),
    "Mapping[str, float]": (Mapping,),
    "Sequence[Source]": (list, tuple),
    "Sequence[Phase]": (list, tuple),
}


def _check_types(settings: Any) -> None:
    """Raise ConfigError for the first setting that is not of its type."""
    for item in fields(settings):
        value, kind = getattr(settings, item.name), str(item.type).removesuffix(" | None")
        if value is None and kind != item.type:
            continue
        if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
            raise ConfigError(
                f"bad {item.name} of {type(settings).__name__}",
                expected=KIND_NAMES.get(kind, kind),
                actual=repr(value),
            )


KIND_NAMES = {
    "str": "a string",
    "str | PathLike[str]": "a path",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "Mapping[str, float]": "a weight for each source",
    "Sequence[Source]": "a list of sources",
    "Sequence[Phase]": "a list of phases",
}

# Settings that only some kinds of rows know: elsewhere they would be ignored in silence.
CONCERNS = {
    "truncation": ("episodes", "packed"),
    "min_tokens": ("episodes",),
    "packing": ("packed",),
}


def _refuse_foreign_settings(source: Source) -> None:
    for name, kinds in CONCERNS.items():
        if getattr(source, name) is not None and source.rows not in kinds:
            raise ConfigError(
                f"source {source.name!r}: {name} does not concern its rows",
                expected=f"rows of {' or '.join(kinds)}",
                actual=source.rows,
                remedy=f"leave {name} out",
            )
