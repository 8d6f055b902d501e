"""Contract 000's settings: the `<training>` section of an XML file, or any object with its names.

    <training>
      <dataset_mode>sft_episode</dataset_mode>               token_stream | sft_episode
      <batch_sampling_mode>epoch</batch_sampling_mode>       random | epoch (of episodes)
      <epoch_shuffle>true</epoch_shuffle>
      <epoch_drop_last>true</epoch_drop_last>
      <epoch_seed>1337</epoch_seed>
      <pad_token_id>50256</pad_token_id>                     default: the tokenizer's eos_id
      <episode_min_tokens>2</episode_min_tokens>
      <use_loss_mask>false</use_loss_mask>
    </training>

Other parts of a trainer have their keys in the same section (learning_rate, max_iters):
they are let through, logged, and kept only where `also` names them. What is spelled
nearly like one of the keys above is an error that says which was meant.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from os import PathLike
from typing import Any, ClassVar, Literal

import numpy as np

from tokenreel.config.load import STRICT, make, read_section
from tokenreel.errors import ConfigError

logger = logging.getLogger(__name__)
# Of difflib's likeness. "pad_token" is as like pad_token_id as 0.86, which was meant; and
# "dataset_name" is as like dataset_mode as 0.83, which was not.
NEARLY = 0.85

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
    use_loss_mask: bool = False
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
        for name in ("epoch_shuffle", "epoch_drop_last", "use_loss_mask"):
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

    `also`: keys of the trainer's own that are kept as attributes, None where they are not
    there; with types they are converted, without one a value of XML stays text.
    `overrides` are settings such as "training.epoch_seed=3".
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
    table = read_section(path, "training", overrides=overrides)
    known = [item.name for item in fields(kind)]
    others = [key for key in table.content if key not in known and not _is_nearly(key, known)]
    if others:
        logger.info("%s: keys left to the trainer: %s", table.where, ", ".join(others))
    ours = {key: value for key, value in table.content.items() if key not in others}
    return make(kind, ours, where=table.where, typed=table.typed)


def _is_nearly(key: str, known: Sequence[str]) -> bool:
    """Whether a key is one of the known ones misspelled, or two of its words or more.

    >>> names = ["epoch_seed", "pad_token_id", "batch_size"]
    >>> [_is_nearly(key, names) for key in ("epoch_sed", "Epoch_Seed", "pad_id")]
    [True, True, True]
    >>> [_is_nearly(key, names) for key in ("seed", "learning_rate", "eval_batch_size")]
    [False, False, False]
    """
    spelled = key.lower().replace("-", "_")
    words = set(spelled.split("_"))
    some_words = len(words) > 1 and any(words <= set(name.split("_")) for name in known)
    return some_words or bool(difflib.get_close_matches(spelled, known, n=1, cutoff=NEARLY))


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
