"""Which loader of contract 000 a configuration asks for."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any

from tokenreel.dropin.episodes import GPTEpisodeDataLoader
from tokenreel.dropin.stream import GPTDataLoader
from tokenreel.dropin.training import settings_of


def make_loader(
    config: Any,
    tokenizer: Any,
    dataset_dir: str | PathLike[str],
    *,
    use_loss_mask: bool | None = None,
    epoch_seed: int | None = None,
    **episode_settings: Any,
) -> GPTEpisodeDataLoader | GPTDataLoader:
    """Return the loader that the config's dataset_mode names.

    What is None is taken from the config. `episode_settings` are the other arguments of
    GPTEpisodeDataLoader; a token stream has no episodes, and takes no notice of them.
    """
    settings = settings_of(config, use_loss_mask=use_loss_mask)
    if settings.dataset_mode == "sft_episode":
        return GPTEpisodeDataLoader(
            config,
            tokenizer,
            dataset_dir,
            use_loss_mask=use_loss_mask,
            epoch_seed=epoch_seed,
            **episode_settings,
        )
    if settings.use_loss_mask:
        warnings.warn(
            f"{dataset_dir}: a token stream has no masks; batches are (x, y)", stacklevel=2
        )
    return GPTDataLoader(config, tokenizer, dataset_dir, epoch_seed=epoch_seed)
