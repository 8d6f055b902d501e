"""Contract 003's settings turned into what a trainer uses, or into a recipe for the feed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from tokenreel.dropin.mapped.data_config import DataConfig, DatasetSource, TrainingPhase
from tokenreel.dropin.mapped.mapped_dataset import MemoryMappedDataset
from tokenreel.dropin.mapped.mixture_dataset import MixtureDataset
from tokenreel.dropin.mapped.mixture_sampler import MixtureSampler
from tokenreel.dropin.mapped.samplers import DistributedSampler
from tokenreel.dropin.mapped.stateful_loader import StatefulDataLoader
from tokenreel.errors import ConfigError, TokenreelError
from tokenreel.feed.agreement import failed_claim
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.order.schedule import normalised
from tokenreel.torch.ranks import compare, ranks_of, running

logger = logging.getLogger(__name__)
WHOLE_PATTERNS = ("*.npy", "*.bin")


class Phases:
    """The phases of a config, applied to a sampler as steps go by.

    >>> config = DataConfig(datasets=[], dataset_path="tokens")
    >>> Phases(config, None).apply(7)
    1.0
    """

    def __init__(self, config: DataConfig, sampler: Any) -> None:
        if config.all_phases and not config.datasets:
            raise ConfigError(
                "phases change the weights of a mixture",
                expected="datasets in the settings",
                actual="one dataset_path",
            )
        self._config, self._sampler = config, sampler
        for phase in config.all_phases:  # a wrong name is told now, not at its step
            weights_in(config, phase)

    def at(self, step: int) -> TrainingPhase | None:
        """Return the phase that holds at a step; None before the first."""
        begun = [phase for phase in self._config.all_phases if phase.start_step <= step]
        return begun[-1] if begun else None

    def apply(self, step: int) -> float:
        """Give the sampler the weights of a step, before its batch; return its lr_scale.

        Costs nothing where the weights hold already, and may be called again on resuming.
        """
        phase = self.at(step)
        if phase is None:
            return 1.0
        weights = list(weights_in(self._config, phase).values())
        self._sampler.update_weights(weights, temperature=self._config.mix_temperature)
        return phase.lr_scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What a trainer needs; `phases.apply(step)` before each step, `loader` for the batches."""

    dataset: MemoryMappedDataset | MixtureDataset
    sampler: DistributedSampler | MixtureSampler
    loader: StatefulDataLoader
    phases: Phases


def make_pipeline(
    config: DataConfig,
    *,
    seq_len: int,
    batch_size: int,
    num_replicas: int | None = None,
    rank: int | None = None,
    seed: int = 0,
) -> Pipeline:
    """Return dataset, sampler, loader and phases; `seq_len` counts inputs, batch_size per rank.

    Under torch.distributed, if one rank cannot open the files, all raise.
    """
    try:
        datasets = _open(config, seq_len)
    except TokenreelError as error:
        if num_replicas is None and running():
            here, world_size = ranks_of(rank, num_replicas)
            compare(failed_claim(error, rank=here, world_size=world_size))
        raise
    dataset: MemoryMappedDataset | MixtureDataset = datasets[0]
    sampler: DistributedSampler | MixtureSampler
    if config.datasets:
        dataset = MixtureDataset(datasets, [source.called for source in config.datasets])
        sampler = MixtureSampler(
            dataset.cumulative_sizes,
            [source.weight for source in config.datasets],
            num_replicas,
            rank,
            seed=seed,
            temperature=config.mix_temperature,
        )
    else:
        sampler = DistributedSampler(dataset, num_replicas, rank, seed=seed)
    return Pipeline(
        dataset=dataset,
        sampler=sampler,
        loader=StatefulDataLoader(dataset, batch_size, sampler, config),
        phases=Phases(config, sampler),
    )


def _open(config: DataConfig, seq_len: int) -> list[MemoryMappedDataset]:
    eos_id = find_eos_id(config) if config.pack_sequences else None
    return [
        MemoryMappedDataset(
            source.path,
            seq_len + 1,
            config.file_pattern,
            config.pack_sequences,
            eos_id,
            dtype=config.dtype,
        )
        for source in sources_of(config)
    ]


def make_recipe(config: DataConfig, *, seq_len: int, batch_size: int, seed: int = 0) -> Recipe:
    """Return a recipe that feeds the same tokens, mixed and phased alike; batch_size is global.

    Rows are the feed's own windows, which lose no transition between them and run across
    files, so they are not the slices of MemoryMappedDataset. lr_scale is no matter of a feed.
    """
    if config.file_pattern not in WHOLE_PATTERNS:
        raise ConfigError(
            "a recipe reads all files of a folder",
            where="file_pattern",
            expected=" or ".join(WHOLE_PATTERNS),
            actual=config.file_pattern,
        )
    sources = [
        Source(
            name=label,
            path=item.path,
            rows="document_windows" if config.pack_sequences else "windows",
            weight=item.weight,
            dtype=config.dtype,
            eos_id=find_eos_id(config) if config.pack_sequences else None,
        )
        for item, label in _labelled(config)
    ]
    phases = [
        Phase(start_step=phase.start_step, weights=weights_in(config, phase))
        for phase in config.all_phases
    ]
    return Recipe(
        seq_len=seq_len,
        global_batch_size=batch_size,
        sources=sources,
        phases=phases,
        temperature=config.mix_temperature,
        seed=seed,
    )


def sources_of(config: DataConfig) -> tuple[DatasetSource, ...]:
    """Return the datasets of a mixture, or the one that dataset_path is."""
    sources = tuple(config.datasets)
    if not sources and config.dataset_path:
        sources = (DatasetSource(path=config.dataset_path),)
    named = [source.hf_name for source in sources if not source.path]
    if not sources and config.hf_dataset_name:
        named = [config.hf_dataset_name]
    if named:
        raise ConfigError(
            f"{named[0]!r} is text of the hub, and only token files are mapped",
            remedy=f"make token files of it once (tokenreel build hf:{named[0]} --out DIR "
            "--tokenizer …) and give DIR as the path",
        )
    if not sources:
        raise ConfigError(
            "there is nothing to read", expected="dataset_path or datasets in the settings"
        )
    return sources


def _labelled(config: DataConfig) -> list[tuple[DatasetSource, str]]:
    sources = sources_of(config)
    labels = labels_of(config) or [PurePath(config.dataset_path).name]
    return list(zip(sources, labels, strict=True))


def find_eos_id(config: DataConfig) -> int:
    """Return the id that ends a document: the one given, else the one the tokenizer declares."""
    if config.eos_token_id is not None:
        return config.eos_token_id
    if not config.tokenizer_path:
        raise ConfigError(
            "pack_sequences needs the id that ends a document",
            expected="tokenizer_path or eos_token_id in the settings",
        )
    from tokenreel.text.tokenizers import find_end, load_tokenizer

    end = find_end(load_tokenizer(config.tokenizer_path, engine="reference"))
    logger.info("documents end with %s (%d), from %s", end.token, end.id, end.source)
    return end.id


def weights_in(config: DataConfig, phase: TrainingPhase) -> dict[str, float]:
    """Return the weight of every dataset in a phase: its own where the phase names none.

    In the order of the datasets, by their labels; a phase may name a dataset by its path too.
    """
    labels = labels_of(config)
    by_path = {source.called: label for source, label in zip(config.datasets, labels, strict=True)}
    weights = {by_path[source.called]: source.weight for source in config.datasets}
    weights |= {by_path.get(name, name): share for name, share in phase.dataset_weights.items()}
    normalised(weights, labels)  # refuses names that do not exist, and suggests the nearest
    return weights


def labels_of(config: DataConfig) -> list[str]:
    """Return a short name of each dataset: its own, else its folder's where no other has that."""
    folders = [source.name or PurePath(source.called).name for source in config.datasets]
    return [
        folder if folders.count(folder) == 1 else source.called
        for folder, source in zip(folders, config.datasets, strict=True)
    ]
