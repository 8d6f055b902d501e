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
from tokenreel.config.settings import check_settings, declared, setting
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

    start_step: int = declared(0, "the step it begins with", least=0)
    dataset_weights: Mapping[str, float] = field(
        default_factory=dict, metadata=setting("by dataset; who is not named keeps his weight")
    )
    lr_scale: float = declared(1.0, "factor on the learning rate", above=0)

    def __post_init__(self) -> None:
        check_settings(self, owner="a phase")
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

    dataset_path: str = declared("", "a folder of token files", checked=False)
    file_pattern: str = declared("*.npy", "which files of a folder are read")
    tokenizer_path: str = declared("", "where the EOS id is looked up", checked=False)
    num_workers: int = declared(0, "processes, for datasets that are not mapped files", least=0)
    pin_memory: bool = declared(True, "whether batches are pinned where there is CUDA")
    prefetch_factor: int = declared(2, "batches a worker is ahead", least=1)
    hf_dataset_name: str | None = declared(None, "text of the hub: read, kept and refused")
    hf_dataset_config: str | None = declared(None, "as above")
    hf_dataset_split: str = declared("train", "as above")
    hf_dataset_text_field: str = declared("text", "as above")
    hf_dataset_image_field: str = declared("image", "as above")
    hf_dataset_prompt_field: str = declared("", "as above")
    hf_image_size: int = declared(224, "as above")
    hf_streaming: bool = declared(False, "as above")
    pack_sequences: bool = declared(False, "whether documents are marked and kept apart")
    datasets: list[DatasetSource] = field(
        default_factory=list, metadata=setting("a mixture, in place of dataset_path", checked=False)
    )
    mix_temperature: float = declared(1.0, "weights to the power of 1 / it are shares", above=0)
    phases: list[TrainingPhase] = field(
        default_factory=list, metadata=setting("weights that change on the way", checked=False)
    )
    anneal_start_step: int = declared(0, "the step of the one phase that annealing is", least=0)
    anneal_weights: Mapping[str, float] = field(
        default_factory=dict, metadata=setting("the weights of that phase")
    )
    dtype: str | None = declared(None, "what .bin files hold")
    eos_token_id: int | None = declared(None, "what ends a document, without a tokenizer")

    def __post_init__(self) -> None:
        check_settings(self)
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
