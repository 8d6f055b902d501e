"""Contract 000's loader of episodes: one padded conversation a row, in batches of one shape.

    t   = the first block_size + 1 tokens, or all of them and then pad_token_id
    x   = t[:-1]     y = t[1:]     mask = the mask of y's tokens, 0 where y is padding

In epoch mode the episodes of a split, all of at least episode_min_tokens tokens, follow
each other epoch after epoch, each epoch a keyed permutation of (epoch_seed, split,
epoch): the three are hashed and never added, so that seed 1, epoch 1 and seed 2, epoch 0
differ. With epoch_drop_last the rest of an epoch that fills no batch is left out; without
it the batch is filled from the next epoch, because batches have one shape. In random mode
rows are drawn with replacement. Either way a split is wound to any place by one count.

A batch, its mask included, is one call of the gather kernel.
"""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from tokenreel.dropin.device import on_device
from tokenreel.dropin.episode_rows import EpisodeRows
from tokenreel.dropin.state import VERSION, check_identity, check_version, count_of
from tokenreel.dropin.training import settings_of
from tokenreel.dropin.vocabulary import check_ids, choose_pad_id, vocab_size_of
from tokenreel.errors import DamageError
from tokenreel.store.layouts import episodes
from tokenreel.store.options import OpenOptions
from tokenreel.store.store import Store

OWNER = "episode loader"


def _of_each_split(name: str) -> tuple[property, property]:
    """Return what the contract calls train_{name} and val_{name}: a property of their rows."""

    def of(split: str) -> property:
        doc = getattr(EpisodeRows, name).__doc__
        return property(lambda loader: getattr(loader._rows_of(split), name), doc=doc)

    return of("train"), of("val")


class GPTEpisodeDataLoader:
    """Episodes of `dataset_dir/train` and `dataset_dir/val`: tokens.bin, episodes.idx, mask.bin.

    What is None is taken from the config, which is any object with the names of
    TrainingConfig as attributes. `tokenizer` may be None where pad_token_id is set.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        dataset_dir: str | PathLike[str],
        use_loss_mask: bool = False,
        batch_sampling_mode: str | None = None,
        epoch_shuffle: bool | None = None,
        epoch_drop_last: bool | None = None,
        epoch_seed: int | None = None,
        pad_token_id: int | None = None,
        episode_min_tokens: int | None = None,
    ) -> None:
        self.settings = settings_of(
            config,
            batch_sampling_mode=batch_sampling_mode,
            epoch_shuffle=epoch_shuffle,
            epoch_drop_last=epoch_drop_last,
            epoch_seed=epoch_seed,
            pad_token_id=pad_token_id,
            episode_min_tokens=episode_min_tokens,
        )
        self.pad_token_id = choose_pad_id(self.settings.pad_token_id, tokenizer)
        self._vocab_size = vocab_size_of(tokenizer)
        self._use_loss_mask = use_loss_mask
        self._store = _open(Path(dataset_dir), self._vocab_size, masks=use_loss_mask)
        self._rows: dict[str, EpisodeRows] = {}
        self._places: dict[str, int] = {}
        for split in ("train", *({"val"} & set(self._store))):
            self._rows_of(split)

    def _rows_of(self, split: str) -> EpisodeRows:
        if split not in self._rows:
            self._rows[split] = EpisodeRows(
                self._store[split], self.settings, pad_id=self.pad_token_id
            )
        return self._rows[split]

    train_tokens, val_tokens = _of_each_split("tokens")
    train_mask, val_mask = _of_each_split("mask")
    train_episodes, val_episodes = _of_each_split("episodes")
    train_episode_ids, val_episode_ids = _of_each_split("episode_ids")

    @property
    def batch_sampling_mode(self) -> str:
        """How rows are chosen: "epoch", unless "random" is asked for."""
        return self.settings.batch_sampling_mode or "epoch"

    def get_batch(self, split: str = "train") -> tuple[torch.Tensor, ...]:
        """Return (x, y) or (x, y, mask), each (batch_size, block_size) on the device."""
        source, place = self._rows_of(split), self._places.get(split, 0)
        choose = source.next_rows if self.batch_sampling_mode == "epoch" else source.draw_rows
        rows, end = choose(place)
        arrays = source.gather(rows)
        check_ids(arrays[0], self._vocab_size, where=source.split.shards[0].token_file.path)
        self._places[split] = end
        return on_device(arrays, self.settings.device)

    def _identity(self) -> dict[str, Any]:
        names = ("epoch_shuffle", "epoch_drop_last", "epoch_seed", "episode_min_tokens")
        return {
            "store": self._store.fingerprint,
            "batch_sampling_mode": self.batch_sampling_mode,
            **{name: getattr(self.settings, name) for name in (*names, "block_size")},
            "pad_token_id": self.pad_token_id,
            "use_loss_mask": self._use_loss_mask,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return where each split is, as a count of rows, and what that belongs to."""
        return {"version": VERSION, "rows": dict(self._places), **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says, exactly; batch_size and device may differ."""
        check_version(state, owner=OWNER)
        check_identity(state, self._identity(), owner=OWNER)
        places = dict(state.get("rows", {}))
        self._places = {split: count_of(places, split, owner=OWNER) for split in places}


def _open(path: Path, vocab_size: int | None, *, masks: bool) -> Store:
    """Open the folder; masks that are damaged or incomplete are as if there were none.

    The contract asks for that, and for one warning.
    """
    options = OpenOptions(vocab_size=vocab_size)
    try:
        store = episodes.open_layout(path, options, masks=masks)
    except DamageError as error:
        if Path(error.where or "").name != episodes.MASK:
            raise
        _warn(str(error), "batches are (x, y)")
        return episodes.open_layout(path, options, masks=False)
    missing = [name for name, split in store.splits.items() if not split.has_weights]
    if masks and missing:
        split = " and ".join(missing)
        _warn(f"{path}: {split} has no {episodes.MASK}", f"batches of {split} are (x, y)")
    return store


def _warn(what: str, consequence: str) -> None:
    message = f"{what}; use_loss_mask is set, but {consequence} and every token is trained"
    warnings.warn(message, stacklevel=4)
