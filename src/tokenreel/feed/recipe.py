"""The recipe: everything a batch depends on besides the stores themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from tokenreel.config.load import STRICT, load
from tokenreel.errors import ConfigError

ROWS = ("windows", "document_windows", "episodes", "packed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A split of a store, and how rows are made of it.

    Settings that do not concern the kind of rows are left at None.
    """

    __pydantic_config__: ClassVar[object] = STRICT

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

    __pydantic_config__: ClassVar[object] = STRICT

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
    """What a run is fed with; global_batch_size counts the rows of one step over all ranks.

    With `passes`, every row of every source is shown exactly so many times, then the run ends:
    an evaluation. Without, sources are mixed by their weights, for `steps` steps or without end.
    Stores of different tokenizers are refused, unless `mixed_tokenizers` insists.
    """

    __pydantic_config__: ClassVar[object] = STRICT

    seq_len: int
    global_batch_size: int
    sources: Sequence[Source]
    seed: int = 0
    phases: Sequence[Phase] = ()
    temperature: float = 1.0
    grad_accum: int = 1
    pad_id: int = 0
    steps: int | None = None
    passes: int | None = None
    mixed_tokenizers: bool = False

    def __post_init__(self) -> None:
        _check_types(self)
        for name in ("seq_len", "global_batch_size", "grad_accum", "steps", "passes"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"bad {name}", expected=">= 1", actual=getattr(self, name))
        if not self.sources:
            raise ConfigError("a recipe needs at least one source")
        names = [source.name for source in self.sources]
        if len(set(names)) != len(names):
            raise ConfigError("two sources have the same name", actual=", ".join(names))
        if self.global_batch_size % self.grad_accum:
            raise ConfigError(
                "the batch does not divide into microbatches",
                expected=f"a multiple of {self.grad_accum}",
                actual=self.global_batch_size,
            )
        if self.passes is not None:
            _refuse_weights(self)

    @classmethod
    def read(cls, path: str | PathLike[str], *, overrides: Sequence[str] = ()) -> Recipe:
        """Read a TOML, YAML or XML file with the same names as keys; paths count from its folder.

        `overrides` are settings such as "sources.web.weight=0.5".
        """
        recipe = load(cls, path, overrides=overrides)
        folder = Path(path).parent
        sources = [replace(item, path=str(folder / item.path)) for item in recipe.sources]
        return replace(recipe, sources=sources)


def _refuse_weights(recipe: Recipe) -> None:
    """Refuse what would decide how often rows are shown, where whole passes decide it."""
    given = {
        "steps": recipe.steps is not None,
        "phases": bool(recipe.phases),
        "temperature": recipe.temperature != 1.0,
        "weight": any(source.weight != 1.0 for source in recipe.sources),
        "max_epochs": any(source.max_epochs is not None for source in recipe.sources),
    }
    for name, is_given in given.items():
        if is_given:
            raise ConfigError(
                f"passes and {name} contradict each other",
                expected=f"{recipe.passes} of every row",
                remedy=f"leave {name} out: each row is shown so many times; or leave out passes",
            )


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
