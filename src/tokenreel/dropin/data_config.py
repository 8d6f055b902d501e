"""Contract 003's settings: the `[data]` section of a TOML, YAML or XML file.

[data]
dataset_path = "/path/to/tokens"
file_pattern = "*.npy"
pack_sequences = false
tokenizer_path = ""                      where the EOS id is looked up, for packing
mix_temperature = 1.0
[[data.datasets]]                        a mixture, in place of dataset_path
name = "web"
path = "/data/web"
weight = 0.7
[[data.phases]]                          or anneal_start_step and anneal_weights
start_step = 10000
dataset_weights = { web = 0.3 }          who is not named keeps the weight above
lr_scale = 0.5
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike
from pathlib import PurePath
from typing import ClassVar

from tokenreel.config.load import STRICT, load
from tokenreel.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSource:
    """A folder of token files and its weight; without a name, it is called like the folder."""

    __pydantic_config__: ClassVar[object] = STRICT

    path: str
    weight: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        if not self.path:
            raise ConfigError("a dataset needs a path", where=self.name or None)
        if not self.name:
            object.__setattr__(self, "name", PurePath(self.path).name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPhase:
    """From `start_step` on, other weights and a factor on the learning rate."""

    __pydantic_config__: ClassVar[object] = STRICT

    start_step: int = 0
    dataset_weights: Mapping[str, float] = field(default_factory=dict)
    lr_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.start_step < 0:
            raise ConfigError("bad start_step of a phase", expected=">= 0", actual=self.start_step)
        if not self.lr_scale > 0:
            raise ConfigError("bad lr_scale of a phase", expected="> 0", actual=self.lr_scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """What is read, and how it is mixed over the run.

    `dtype` declares what .bin files hold, `eos_token_id` what ends a document where no
    tokenizer is at hand. num_workers, prefetch_factor and pin_memory are for datasets that
    are not mapped files; there are no workers unless they are asked for.
    """

    __pydantic_config__: ClassVar[object] = STRICT

    dataset_path: str = ""
    file_pattern: str = "*.npy"
    tokenizer_path: str = ""
    pack_sequences: bool = False
    datasets: Sequence[DatasetSource] = ()
    mix_temperature: float = 1.0
    phases: Sequence[TrainingPhase] = ()
    anneal_start_step: int = 0
    anneal_weights: Mapping[str, float] = field(default_factory=dict)
    dtype: str | None = None
    eos_token_id: int | None = None
    num_workers: int = 0
    prefetch_factor: int = 2
    pin_memory: bool = True

    def __post_init__(self) -> None:
        lowest = {"anneal_start_step": 0, "num_workers": 0, "prefetch_factor": 1}
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise ConfigError(f"bad {name}", expected=f">= {least}", actual=getattr(self, name))
        if not self.mix_temperature > 0:
            raise ConfigError("bad mix_temperature", expected="> 0", actual=self.mix_temperature)
        names = [source.name for source in self.datasets]
        if len(set(names)) != len(names):
            raise ConfigError("two datasets have the same name", actual=", ".join(names))
        if self.phases and self.anneal_start_step:
            raise ConfigError(
                "phases and anneal_start_step exclude each other",
                remedy="make the annealing the last phase",
            )
        if bool(self.anneal_weights) != bool(self.anneal_start_step):
            raise ConfigError("anneal_start_step and anneal_weights are given together")
        for before, after in pairwise(phase.start_step for phase in self.phases):
            if after <= before:
                raise ConfigError(
                    "the start_step of phases must grow", expected=f"> {before}", actual=after
                )

    @property
    def all_phases(self) -> tuple[TrainingPhase, ...]:
        """The phases, or the one that the annealing is."""
        if not self.anneal_start_step:
            return tuple(self.phases)
        annealing = TrainingPhase(
            start_step=self.anneal_start_step, dataset_weights=self.anneal_weights
        )
        return (annealing,)


def load_data_config(path: str | PathLike[str], *, overrides: Sequence[str] = ()) -> DataConfig:
    """Read the section `data` of a file; `overrides` are settings such as "data.dtype=uint16"."""
    return load(DataConfig, path, section="data", overrides=overrides)
