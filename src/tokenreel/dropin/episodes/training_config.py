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
from dataclasses import dataclass, fields, make_dataclass
from os import PathLike
from typing import Any, ClassVar, Literal

import numpy as np

from tokenreel.config.load import STRICT, make, read_section
from tokenreel.config.settings import check_settings, declared
from tokenreel.errors import ConfigError

logger = logging.getLogger(__name__)
# Of difflib's likeness. "pad_token" is as like pad_token_id as 0.86, which was meant; and
# "dataset_name" is as like dataset_mode as 0.83, which was not.
NEARLY = 0.85


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The settings of a loader.

    batch_sampling_mode None is epoch for episodes, random for token streams.
    """

    __pydantic_config__: ClassVar[object] = STRICT

    dataset_mode: Literal["token_stream", "sft_episode"] = declared(
        "token_stream", "random windows of one stream of tokens, or padded episodes"
    )
    batch_sampling_mode: Literal["random", "epoch"] | None = declared(
        None, "how episodes are chosen"
    )
    epoch_shuffle: bool = declared(True, "whether an epoch has an order of its own")
    epoch_drop_last: bool = declared(True, "whether the rest that fills no batch is left out")
    epoch_seed: int = declared(1337, "of all orders and draws", most=2**128 - 1)
    pad_token_id: int | None = declared(None, "fills rows; else the tokenizer's eos_id", least=0)
    episode_min_tokens: int = declared(2, "shorter episodes are left out", least=1)
    use_loss_mask: bool = declared(False, "whether batches have the stored mask of y")
    batch_size: int | None = declared(None, "rows of a batch", least=1)
    block_size: int | None = declared(None, "tokens of a row", least=1)
    device: str = declared("cpu", "where the tensors are")

    def __post_init__(self) -> None:
        check_settings(self)


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
            [
                (name, as_type | None, declared(None, "of the trainer", checked=False))
                for name, as_type in kinds.items()
            ],
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
