"""Other projects' interfaces, exactly, over the core; they need torch.

contract 000   GPTEpisodeDataLoader, GPTDataLoader, make_loader, load_training_config
contract 003   MemoryMappedDataset, MixtureDataset, DistributedSampler, MixtureSampler,
               StatefulDataLoader, load_data_config, make_pipeline, make_recipe
"""

from __future__ import annotations

from tokenreel.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401 - what follows cannot do without
except ImportError as error:
    raise MissingExtraError("torch", extra="torch", purpose="tokenreel.dropin") from error

from tokenreel.dropin.data_config import (
    DataConfig,
    DatasetSource,
    TrainingPhase,
    load_data_config,
)
from tokenreel.dropin.episodes import GPTEpisodeDataLoader
from tokenreel.dropin.loader import make_loader
from tokenreel.dropin.mapped import MemoryMappedDataset
from tokenreel.dropin.mixed import MixtureDataset
from tokenreel.dropin.mixture_sampler import MixtureSampler
from tokenreel.dropin.phases import Phases
from tokenreel.dropin.pipeline import Pipeline, make_pipeline, make_recipe
from tokenreel.dropin.samplers import DistributedSampler
from tokenreel.dropin.stateful import StatefulDataLoader
from tokenreel.dropin.stream import GPTDataLoader
from tokenreel.dropin.training import TrainingConfig, load_training_config

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
