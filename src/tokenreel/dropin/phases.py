"""Phases of a run: which weights and which learning rate hold at a step."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from tokenreel.dropin.data_config import DataConfig, TrainingPhase
from tokenreel.errors import ConfigError
from tokenreel.order.schedule import normalised


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
