"""Other projects' interfaces, exactly, over the core; those named here need torch.

episodes/   contract 000: GPTEpisodeDataLoader, GPTDataLoader, make_loader, load_training_config
caches/     contracts 001 and 002: what the package niels_gpt is made of
mapped/     contract 003: MemoryMappedDataset, MixtureDataset, DistributedSampler, MixtureSampler,
            StatefulDataLoader, load_data_config, make_pipeline, make_recipe
*.py        what several of them share

docs/contracts.md says which logic of its own each has. A name is loaded when it is first used:
the caches need no torch before they draw.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tokenreel.dropin.torch_rows import import_torch

if TYPE_CHECKING:
    from tokenreel.dropin.episodes.episode_loader import GPTEpisodeDataLoader, make_loader
    from tokenreel.dropin.episodes.token_loader import GPTDataLoader
    from tokenreel.dropin.episodes.training_config import TrainingConfig, load_training_config
    from tokenreel.dropin.mapped.data_config import (
        DataConfig,
        DatasetSource,
        TrainingPhase,
        load_data_config,
    )
    from tokenreel.dropin.mapped.mapped_dataset import MemoryMappedDataset
    from tokenreel.dropin.mapped.mapped_pipeline import (
        Phases,
        Pipeline,
        make_pipeline,
        make_recipe,
    )
    from tokenreel.dropin.mapped.mixture_dataset import MixtureDataset
    from tokenreel.dropin.mapped.mixture_sampler import MixtureSampler
    from tokenreel.dropin.mapped.samplers import DistributedSampler
    from tokenreel.dropin.mapped.stateful_loader import StatefulDataLoader

__all__ = [
    "DataConfig",
    "DatasetSource",
    "DistributedSampler",
    "GPTDataLoader",
    "GPTEpisodeDataLoader",
    "MemoryMappedDataset",
    "MixtureDataset",
    "MixtureSampler",
    "Phases",
    "Pipeline",
    "StatefulDataLoader",
    "TrainingConfig",
    "TrainingPhase",
    "load_data_config",
    "load_training_config",
    "make_loader",
    "make_pipeline",
    "make_recipe",
]

_PLACES = {
    "DataConfig": "mapped.data_config",
    "DatasetSource": "mapped.data_config",
    "DistributedSampler": "mapped.samplers",
    "GPTDataLoader": "episodes.token_loader",
    "GPTEpisodeDataLoader": "episodes.episode_loader",
    "MemoryMappedDataset": "mapped.mapped_dataset",
    "MixtureDataset": "mapped.mixture_dataset",
    "MixtureSampler": "mapped.mixture_sampler",
    "Phases": "mapped.mapped_pipeline",
    "Pipeline": "mapped.mapped_pipeline",
    "StatefulDataLoader": "mapped.stateful_loader",
    "TrainingConfig": "episodes.training_config",
    "TrainingPhase": "mapped.data_config",
    "load_data_config": "mapped.data_config",
    "load_training_config": "episodes.training_config",
    "make_loader": "episodes.episode_loader",
    "make_pipeline": "mapped.mapped_pipeline",
    "make_recipe": "mapped.mapped_pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_torch()
    value = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
