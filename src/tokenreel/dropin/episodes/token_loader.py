"""Contract 000's loader of token streams: random windows, as a pure function of a count.

Every window of block_size + 1 tokens of a split is equally likely, across shards too,
with replacement. Batch n holds the draws n·B to n·B + B of (epoch_seed, split), so a
state is a count, and the same seed gives the same batches on every machine.
"""

from __future__ import annotations

import logging
from os import PathLike
from typing import Any

import numpy as np
import torch

from tokenreel.dropin.episodes.draws import Draws
from tokenreel.dropin.episodes.training_config import settings_of
from tokenreel.dropin.id_rows import IdRows
from tokenreel.dropin.saved_state import VERSION, check_identity, check_version, count_of, part_of
from tokenreel.dropin.shard_windows import one_piece_each
from tokenreel.dropin.tokenizer_facts import check_ids, vocab_size_of
from tokenreel.dropin.torch_rows import on_device
from tokenreel.errors import ConfigError
from tokenreel.feed.plain_labels import without_answers
from tokenreel.layouts.open_store import open_store
from tokenreel.rows.ranges import token_pieces
from tokenreel.seeds import derive_key
from tokenreel.store.split import Split

logger = logging.getLogger(__name__)
OWNER = "token stream loader"


class GPTDataLoader:
    """Random windows of `train.bin` and `val.bin`, shards, or any layout `open_store` knows."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        dataset_dir: str | PathLike[str],
        *,
        epoch_seed: int | None = None,
        dtype: str | None = None,
    ) -> None:
        self.settings = settings_of(config, epoch_seed=epoch_seed)
        self._vocab_size = vocab_size_of(tokenizer)
        store = open_store(dataset_dir, dtype=dtype, vocab_size=self._vocab_size)
        self._store = without_answers(store)
        self._drawn: dict[str, int] = {}
        self._windows: dict[str, _RandomWindows] = {}
        self._windows_of("train")
        for name, split in self._store.splits.items():
            logger.info("[TokenLoader] split=%s tokens=%d sampling=random", name, split.num_tokens)

    def _split(self, name: str) -> Split:
        split = self._store[name]
        if split.num_tokens <= self._seq_len:
            raise ConfigError(
                f"split {name} is shorter than a window of block_size + 1 tokens",
                where=self._store.path,
                expected=f">= {self._seq_len + 1:,} tokens",
                actual=split.num_tokens,
            )
        return split

    @property
    def _seq_len(self) -> int:
        return self.settings.block_size or 0

    def get_batch(self, split: str = "train") -> tuple[torch.Tensor, ...]:
        """Return x and y, each (batch_size, block_size) int64 on the device."""
        windows, size = self._windows_of(split), self.settings.batch_size or 0
        begin = self._drawn.get(split, 0)
        x, y = windows.gather(begin, size)
        check_ids(x, self._vocab_size, where=self._store.path)
        self._drawn[split] = begin + size
        return on_device((x, y), self.settings.device)

    def _windows_of(self, split: str) -> _RandomWindows:
        if split not in self._windows:
            key = derive_key("windows", self.settings.epoch_seed, split)
            self._windows[split] = _RandomWindows(self._split(split), self._seq_len, key)
        return self._windows[split]

    def _identity(self) -> dict[str, Any]:
        return {
            "store": self._store.fingerprint,
            "epoch_seed": self.settings.epoch_seed,
            "block_size": self.settings.block_size,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return how many windows of each split were drawn, and what they belong to."""
        return {"version": VERSION, "drawn": dict(self._drawn), **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says; batch_size and device may differ."""
        check_version(state, owner=OWNER)
        check_identity(state, self._identity(), owner=OWNER)
        drawn = part_of(state, "drawn", owner=OWNER)
        self._drawn = {split: count_of(drawn, split, owner=OWNER) for split in drawn}


class _RandomWindows:
    """The windows of a split, in the order they are drawn."""

    def __init__(self, split: Split, seq_len: int, key: int) -> None:
        self._split, self._num_slots = split, seq_len + 1
        self._num_windows = split.num_tokens - seq_len
        self._starts = Draws(self._num_windows, key=key)
        self._ids = IdRows(split, seq_len)

    def gather(self, begin: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y of draws begin to begin + count."""
        if begin % self._num_windows < count:  # once in as many draws as there are windows
            self._split.check_sizes()
        position = self._starts.rows(begin, count)
        same = one_piece_each(count, self._num_slots)
        pieces = token_pieces(self._split, position=position, **same)
        return self._ids.gather(pieces)
