"""The recipe: everything a batch depends on besides the stores themselves."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
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
    path: str
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

    def __post_init__(self) -> None:
        if self.rows not in ROWS:
            raise ConfigError(
                f"source {self.name!r}: unknown rows", expected=", ".join(ROWS), actual=self.rows
            )
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
        for name in ("seq_len", "batch_size", "accumulate"):
            if getattr(self, name) < 1:
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
        sources = [
            _make(Source, {**item, "path": str(place.parent / item.get("path", ""))}, place)
            for item in content.pop("sources", [])
        ]
        phases = [_make(Phase, item, place) for item in content.pop("phases", [])]
        return _make(cls, {**content, "sources": sources, "phases": phases}, place)


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
    return kind(**values)
