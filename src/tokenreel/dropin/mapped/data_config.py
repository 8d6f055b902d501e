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

Keys, their order, defaults and what they may be are those of the contract's project; `dtype`
and `eos_token_id` are ours. The keys that begin with hf_ are read and kept: text of the hub is
refused where a dataset is to be made of it (pipeline.py), with the command that makes tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike
from typing import ClassVar

from tokenreel.config.load import STRICT, load
from tokenreel.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """A folder of token files, or a dataset of the hub, and its weight."""

    __pydantic_config__: ClassVar[object] = STRICT

    path: str = ""
    weight: float = 1.0
    name: str = ""
    hf_name: str = ""
    hf_config: str = ""

    @property
    def called(self) -> str:
        """The name of the dataset in a mixture: without one of its own, its path."""
        return self.name or self.path or self.hf_name


@dataclass(frozen=True, slots=True)
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
        for name, weight in self.dataset_weights.items():
            if not weight >= 0:
                raise ConfigError(
                    f"bad dataset_weights of a phase: {name}", expected=">= 0", actual=weight
                )


@dataclass(frozen=True, slots=True)
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
    num_workers: int = 0
    pin_memory: bool = True
    prefetch_factor: int = 2
    hf_dataset_name: str | None = None
    hf_dataset_config: str | None = None
    hf_dataset_split: str = "train"
    hf_dataset_text_field: str = "text"
    hf_dataset_image_field: str = "image"
    hf_dataset_prompt_field: str = ""
    hf_image_size: int = 224
    hf_streaming: bool = False
    pack_sequences: bool = False
    datasets: list[DatasetSource] = field(default_factory=list)
    mix_temperature: float = 1.0
    phases: list[TrainingPhase] = field(default_factory=list)
    anneal_start_step: int = 0
    anneal_weights: Mapping[str, float] = field(default_factory=dict)
    dtype: str | None = None
    eos_token_id: int | None = None

    def __post_init__(self) -> None:
        lowest = {"anneal_start_step": 0, "num_workers": 0, "prefetch_factor": 1}
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise ConfigError(f"bad {name}", expected=f">= {least}", actual=getattr(self, name))
        if not self.mix_temperature > 0:
            raise ConfigError("bad mix_temperature", expected="> 0", actual=self.mix_temperature)
        names = [source.called for source in self.datasets]
        if not all(names):
            raise ConfigError("a dataset needs a path", expected="path or hf_name")
        if len(set(names)) != len(names):
            raise ConfigError("two datasets have the same name", actual=", ".join(names))
        if self.phases and self.anneal_start_step:
            raise ConfigError(
                "phases and anneal_start_step exclude each other",
                remedy="make the annealing the last phase",
            )
        for before, after in pairwise(phase.start_step for phase in self.phases):
            if after <= before:
                raise ConfigError(
                    "the start_step of phases must grow", expected=f"> {before}", actual=after
                )

    @property
    def all_phases(self) -> tuple[TrainingPhase, ...]:
        """The phases, or the one that the annealing is: with a step and weights, else none."""
        if not (self.anneal_start_step and self.anneal_weights):
            return tuple(self.phases)
        annealing = TrainingPhase(
            start_step=self.anneal_start_step, dataset_weights=self.anneal_weights
        )
        return (annealing,)


def load_data_config(path: str | PathLike[str], *, overrides: Sequence[str] = ()) -> DataConfig:
    """Read the section `data` of a file; `overrides` are settings such as "data.dtype=uint16"."""
    return load(DataConfig, path, section="data", overrides=overrides)
