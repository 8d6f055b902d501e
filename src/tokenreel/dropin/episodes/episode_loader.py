"""Contract 000's loader of episodes: one padded conversation a row, in batches of one shape.

    t   = the first block_size + 1 tokens, or all of them and then pad_token_id
    x   = t[:-1]     y = t[1:]     mask = the mask of y's tokens, 0 where y is padding

In epoch mode the episodes of a split, all of at least episode_min_tokens tokens, follow
each other epoch after epoch, each epoch in the order of seed_epoch = epoch_seed + epoch
(`episode_rows`): seed 10, epoch 1 is seed 11, epoch 0, in train and in val. With
epoch_drop_last the rest of an epoch that fills no batch is left out; without it, and in a
split that is smaller than a batch, the batch goes on with the next epoch, because batches
have one shape. In random mode rows are drawn with replacement. Either way a split is
wound to any place by one count.

The contract leaves open what a missing val/ is. Here `get_batch("val")` then shows
episodes of train, with one warning and in an order and a place of its own: a run that has
no val split evaluates on what it has, and its training order does not change by it.

A batch, its mask included, is one call of the gather kernel.
"""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from tokenreel.dropin.episodes.episode_rows import ORDER_VERSION, EpisodeRows
from tokenreel.dropin.episodes.token_loader import GPTDataLoader
from tokenreel.dropin.episodes.training_config import settings_of
from tokenreel.dropin.saved_state import VERSION, check_identity, check_version, count_of, part_of
from tokenreel.dropin.tokenizer_facts import check_ids, choose_pad_id, vocab_size_of
from tokenreel.dropin.torch_rows import on_device
from tokenreel.errors import DamageError
from tokenreel.layouts import episode_files
from tokenreel.store.open_options import OpenOptions
from tokenreel.store.split import Split
from tokenreel.store.store import Store

OWNER = "episode loader"


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


def _of_each_split(name: str) -> tuple[property, property]:
    """Return a property of the rows of train and the same of val, under the contract's names."""

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
        use_loss_mask: bool | None = None,
        batch_sampling_mode: str | None = None,
        epoch_shuffle: bool | None = None,
        epoch_drop_last: bool | None = None,
        epoch_seed: int | None = None,
        pad_token_id: int | None = None,
        episode_min_tokens: int | None = None,
    ) -> None:
        self.settings = settings_of(
            config,
            use_loss_mask=use_loss_mask,
            batch_sampling_mode=batch_sampling_mode,
            epoch_shuffle=epoch_shuffle,
            epoch_drop_last=epoch_drop_last,
            epoch_seed=epoch_seed,
            pad_token_id=pad_token_id,
            episode_min_tokens=episode_min_tokens,
        )
        self.pad_token_id = choose_pad_id(self.settings.pad_token_id, tokenizer)
        self._vocab_size = vocab_size_of(tokenizer)
        options = OpenOptions(vocab_size=self._vocab_size)
        self._mask_faults = _mask_faults(Path(dataset_dir), options, self.settings.use_loss_mask)
        masks = [split for split, fault in self._mask_faults.items() if fault is None]
        self._store = episode_files.open_for_loader(Path(dataset_dir), options, masks=masks)
        _warn_of_missing_masks(self._store, masks)
        self._rows: dict[str, EpisodeRows] = {}
        self._rows_of("train")
        if "val" in self._store.splits and self._mask_faults.get("val") is None:
            self._rows_of("val")

    def _rows_of(self, split: str) -> EpisodeRows:
        """Return the rows of a split, opened when they are first asked for."""
        if split not in self._rows:
            fault = self._mask_faults.get(split)
            if fault is not None:
                raise fault
            self._rows[split] = EpisodeRows(
                self._store[self._source_of(split)],
                self.settings,
                pad_id=self.pad_token_id,
                name=split,
            )
        return self._rows[split]

    def _source_of(self, split: str) -> str:
        """Return the split whose episodes are shown: train's for a val that is not there."""
        if split != "val" or split in self._store.splits:
            return split
        warnings.warn(
            f'{self._store.path}: there is no split "val", so get_batch("val") shows episodes of '
            "train, and what is measured on them is no validation",
            stacklevel=4,
        )
        return "train"

    train_tokens, val_tokens = _of_each_split("tokens")
    train_mask, val_mask = _of_each_split("mask")
    train_episodes, val_episodes = _of_each_split("episodes")
    train_episode_ids, val_episode_ids = _of_each_split("episode_ids")
    _epoch_train, _epoch_val = _of_each_split("epoch")
    _pos_train, _pos_val = _of_each_split("pos")
    _order_train, _order_val = _of_each_split("order")

    @property
    def batch_sampling_mode(self) -> str:
        """How rows are chosen: "epoch", unless "random" is asked for."""
        return self.settings.batch_sampling_mode or "epoch"

    def get_batch(self, split: str = "train") -> tuple[torch.Tensor, ...]:
        """Return (x, y) or (x, y, mask), each (batch_size, block_size) on the device."""
        source = self._rows_of(split)
        rows, stop = source.choose()
        arrays = source.gather(rows)
        check_ids(arrays[0], self._vocab_size, where=source.split.shards[0].token_file.path)
        source.place = stop
        return on_device(arrays, self.settings.device)

    def _identity(self) -> dict[str, Any]:
        names = ("epoch_shuffle", "epoch_drop_last", "epoch_seed", "episode_min_tokens")
        identity = {
            "store": self._store.fingerprint,
            "batch_sampling_mode": self.batch_sampling_mode,
            **{name: getattr(self.settings, name) for name in (*names, "block_size")},
            "pad_token_id": self.pad_token_id,
            "use_loss_mask": self.settings.use_loss_mask,
        }
        return identity | ({"order": ORDER_VERSION} if self.batch_sampling_mode == "epoch" else {})

    def state_dict(self) -> dict[str, Any]:
        """Return where each split is, as a count of rows, and what that belongs to."""
        places = {split: rows.place for split, rows in self._rows.items()}
        return {"version": VERSION, "rows": places, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says, exactly; batch_size and device may differ."""
        check_version(state, owner=OWNER)
        # A state that names no order is of the first one.
        check_identity({"order": 1, **state}, self._identity(), owner=OWNER)
        places = part_of(state, "rows", owner=OWNER)
        counts = {split: count_of(places, split, owner=OWNER) for split in places}
        for split in {*counts, *self._rows}:
            self._rows_of(split).place = counts.get(split, 0)


def _mask_faults(
    path: Path, options: OpenOptions, use_loss_mask: bool
) -> dict[str, DamageError | None]:
    """Return what is wrong with the masks of each split, where they are used.

    A damaged mask is the error of its split: train's is raised here, another split's by
    get_batch of that split, which a warning foretells.
    """
    faults = episode_files.mask_faults(path, options) if use_loss_mask else {}
    for split, fault in faults.items():
        if fault is None:
            continue
        if split == "train":
            raise fault
        warnings.warn(f"{fault}; until then get_batch({split!r}) is an error", stacklevel=3)
    return faults


def _warn_of_missing_masks(store: Store, masks: list[str]) -> None:
    """Warn once of splits that should have masks and lack some: their batches are (x, y)."""
    lacking = [store[split] for split in masks if not store[split].has_weights]
    if not lacking:
        return
    missing = " and ".join(map(_what_is_missing, lacking))
    names = " and ".join(split.name for split in lacking)
    warnings.warn(
        f"{store.path}: {missing}; use_loss_mask is set, but batches of {names} are (x, y) and "
        "every token is trained",
        stacklevel=3,
    )


def _what_is_missing(split: Split) -> str:
    with_mask = sum(shard.weight_file is not None for shard in split.shards)
    if not with_mask:
        return f"{split.name} has no {episode_files.MASK}"
    return (
        f"{split.name} has a {episode_files.MASK} in {with_mask} of {len(split.shards)} shards only"
    )
