"""Contract 000's settings: the `<training>` section of an XML file, or any object with its names.

    <training>
      <dataset_mode>sft_episode</dataset_mode>               token_stream | sft_episode
      <batch_sampling_mode>epoch</batch_sampling_mode>       random | epoch (of episodes)
      <epoch_shuffle>true</epoch_shuffle>
      <epoch_drop_last>true</epoch_drop_last>
      <epoch_seed>1337</epoch_seed>
      <pad_token_id>50256</pad_token_id>                     default: the tokenizer's eos_id
      <episode_min_tokens>2</episode_min_tokens>
    </training>

A key that is none of these is an error that suggests the nearest; `also` names the
trainer's own keys that stand in the same section.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from os import PathLike
from typing import Any, ClassVar, Literal

import numpy as np

from tokenreel.config.load import STRICT, load
from tokenreel.errors import ConfigError

DATASET_MODES = ("token_stream", "sft_episode")
SAMPLING_MODES = ("random", "epoch")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The settings of a loader.

    batch_sampling_mode None is epoch for episodes, random for token streams.
    """

    __pydantic_config__: ClassVar[object] = STRICT

    dataset_mode: Literal["token_stream", "sft_episode"] = "token_stream"
    batch_sampling_mode: Literal["random", "epoch"] | None = None
    epoch_shuffle: bool = True
    epoch_drop_last: bool = True
    epoch_seed: int = 1337
    pad_token_id: int | None = None
    episode_min_tokens: int = 2
    batch_size: int | None = None
    block_size: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, known in (
            ("dataset_mode", DATASET_MODES),
            ("batch_sampling_mode", (*SAMPLING_MODES, None)),
        ):
            if getattr(self, name) not in known:
                expected = " or ".join(mode for mode in known if mode)
                raise ConfigError(f"bad {name}", expected=expected, actual=getattr(self, name))
        for name in ("epoch_shuffle", "epoch_drop_last"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(
                    f"bad {name}", expected="true or false", actual=repr(getattr(self, name))
                )
        lowest = {"pad_token_id": 0, "episode_min_tokens": 1, "batch_size": 1, "block_size": 1}
        for name in ("epoch_seed", *lowest):
            self._check_number(name, lowest.get(name))

    def _check_number(self, name: str, lowest: int | None) -> None:
        value = getattr(self, name)
        if value is None and name not in ("epoch_seed", "episode_min_tokens"):
            return
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or (lowest is not None and value < lowest):
            expected = "a whole number" if lowest is None else f"a whole number >= {lowest}"
            raise ConfigError(f"bad {name}", expected=expected, actual=repr(value))


def load_training_config(
    path: str | PathLike[str],
    *,
    also: Iterable[str] | Mapping[str, type] = (),
    overrides: Sequence[str] = (),
) -> TrainingConfig:
    """Read the section `training` of an XML, TOML or YAML file.

    `also`: further keys that may stand there and are kept as attributes, None where they do
    not; with types they are converted, without one a value of XML stays text. `overrides`
    are settings such as "training.epoch_seed=3".
    """
    kinds = dict(also) if isinstance(also, Mapping) else dict.fromkeys(also, Any)
    kind: type[TrainingConfig] = TrainingConfig
    if kinds:
        kind = make_dataclass(
            "TrainingConfig",
            [(name, as_type | None, field(default=None)) for name, as_type in kinds.items()],
            bases=(TrainingConfig,),
            frozen=True,
            kw_only=True,
        )
    return load(kind, path, section="training", overrides=overrides)


def settings_of(config: Any, **given: Any) -> TrainingConfig:
    """Return the settings of any object that has them as attributes; what is given wins over it.

    None means "not given", in both places.
    """
    values = {item.name: getattr(config, item.name, None) for item in fields(TrainingConfig)}
    values |= {name: value for name, value in given.items() if value is not None}
    values |= {
        name: value.item() for name, value in values.items() if isinstance(value, np.generic)
    }
    if values["device"] is not None:
        values["device"] = str(values["device"])
    settings = TrainingConfig(**{k: value for k, value in values.items() if value is not None})
    for name in ("batch_size", "block_size"):
        if getattr(settings, name) is None:
            raise ConfigError(
                f"the configuration has no {name}", remedy=f"give it an attribute {name}"
            )
    return settings
