"""The episodes of one split as rows: which come next, and what they look like."""

from __future__ import annotations

import logging
from functools import partial

import numpy as np

from tokenreel.dropin.training import TrainingConfig
from tokenreel.errors import ConfigError, DamageError
from tokenreel.feed.ids import IdRows
from tokenreel.order.ahead import AT_ONCE, Ahead
from tokenreel.order.draws import draw
from tokenreel.order.order import Order, SourceRows
from tokenreel.rows.heads import Heads
from tokenreel.seeds import derive_key
from tokenreel.store.layouts.episodes import MASK
from tokenreel.store.shard import Shard
from tokenreel.store.split import Split

logger = logging.getLogger(__name__)


class EpisodeRows:
    """All episodes of a split that are long enough, in the order of the settings."""

    def __init__(self, split: Split, settings: TrainingConfig, *, pad_id: int) -> None:
        self.split, self.pad_id = split, pad_id
        self.has_mask = split.has_weights
        self._settings = settings
        self._seq_len, self._batch_size = settings.block_size or 0, settings.batch_size or 0
        self._heads = Heads(
            split=split, seq_len=self._seq_len, min_tokens=settings.episode_min_tokens
        )
        source = SourceRows(name=split.name, num_rows=self.num_rows, shuffle=settings.epoch_shuffle)
        order = Order([source], shares=[1.0], seed=settings.epoch_seed)
        key = derive_key("episodes", settings.epoch_seed, split.name)
        # Not further than an epoch: each has a permutation that must be made first.
        self._epochs = Ahead(
            lambda start, count: order.locate(start, count).row,
            at_once=min(self.num_rows, AT_ONCE),
        )
        self._drawn = Ahead(partial(draw, num_rows=self.num_rows, key=key))
        self._ids = IdRows(split, self._seq_len)
        masks = [shard.weight_file for shard in split.shards if shard.weight_file is not None]
        self._floats = any(file.dtype.kind == "f" for file in masks)
        logger.info(
            "[EpisodeLoader] split=%s episodes=%d filtered=%d tokens=%d mask=%s",
            split.name,
            self.num_rows,
            (split.num_documents or 0) - self.num_rows,
            split.num_tokens,
            _spelled(self.has_mask),
        )

    @property
    def episode_ids(self) -> np.ndarray:
        """The numbers of the episodes that are rows, int64."""
        return self._heads.documents

    @property
    def num_rows(self) -> int:
        """How many episodes an epoch has."""
        return self._heads.num_rows

    @property
    def tokens(self) -> np.ndarray:
        """The mapped tokens, uint32."""
        return self._only_shard.tokens

    @property
    def mask(self) -> np.ndarray | None:
        """The mapped mask, uint8 or float32; None where there is none or it is not used."""
        return self._only_shard.weights

    @property
    def episodes(self) -> np.ndarray:
        """Start and length of all episodes, the short ones too, uint64 [episodes, 2]."""
        index = self._only_shard.documents
        starts, stops = index.bounds(np.arange(len(index)))
        return np.stack((starts, stops - starts), axis=1).astype(np.uint64)

    @property
    def _only_shard(self) -> Shard:
        if len(self.split.shards) > 1:
            raise ConfigError(
                f"split {self.split.name} is not one array",
                expected="one shard",
                actual=len(self.split.shards),
                remedy="read it through tokenreel.open_store",
            )
        return self.split.shards[0]

    def draw_rows(self, place: int) -> tuple[np.ndarray, int]:
        """Return the rows of the batch that follows `place` rows drawn, and the place after it."""
        return self._drawn.rows(place, self._batch_size), place + self._batch_size

    def next_rows(self, place: int) -> tuple[np.ndarray, int]:
        """Return the rows of the batch that follows `place` rows of all epochs, and its end."""
        size, num_rows = self._batch_size, self.num_rows
        if self._settings.epoch_drop_last:
            self._refuse_empty_epochs()
            if place % num_rows + size > num_rows:  # what is left fills no batch
                place += num_rows - place % num_rows
        for epoch in range(-(-place // num_rows), -(-(place + size) // num_rows)):
            self._begin(epoch)
        return self._epochs.rows(place, size), place + size

    def _refuse_empty_epochs(self) -> None:
        if self.num_rows < self._batch_size:
            raise ConfigError(
                f"split {self.split.name} has fewer episodes than a batch, and what fills no "
                "batch is dropped",
                expected=f">= {self._batch_size:,} episodes",
                actual=self.num_rows,
                remedy="set epoch_drop_last to false, or choose a smaller batch_size",
            )

    def _begin(self, epoch: int) -> None:
        """Say that an epoch begins, and see to it that the files are still whole."""
        drop_last = self._settings.epoch_drop_last
        rounded = self.num_rows if drop_last else self.num_rows + self._batch_size - 1
        self.split.check_sizes()
        logger.info(
            "[EpisodeLoader] split=%s epoch=%d episodes=%d batches=%d shuffle=%s drop_last=%s "
            "pad_id=%d mask=%s",
            self.split.name,
            epoch,
            self.num_rows,
            rounded // self._batch_size,
            _spelled(self._settings.epoch_shuffle),
            _spelled(drop_last),
            self.pad_id,
            _spelled(self.has_mask),
        )

    def gather(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return x, y and, where there is one, the mask of y, float32; all [rows, T]."""
        pieces = self._heads.pieces(rows)
        if not self.has_mask:
            return self._ids.gather_padded(pieces, self.pad_id)
        x, y, mask = self._ids.gather_weighed(pieces, self.pad_id)
        if self._floats and not (mask.min() >= 0 and mask.max() < np.inf):  # NaN is neither
            raise DamageError(
                "a mask is negative or not a number",
                where=self.split.shards[0].token_file.path.with_name(MASK),
                expected=">= 0",
                remedy="restore the file",
            )
        return x, y, mask


def _spelled(value: bool) -> str:
    return "true" if value else "false"
