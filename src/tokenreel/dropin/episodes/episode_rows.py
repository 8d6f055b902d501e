"""The episodes of one split as rows: which come next, and what they look like.

Rows are numbered as the contract numbers episodes: as episodes.idx lists them, without
those that are too short, on from shard to shard. An epoch's order is

    numpy.random.RandomState(epoch_seed + epoch).permutation(num_rows)

which is the contract's arithmetic and the shuffle of the project it comes from: that
project documents the line as the way to find out afterwards what a run has seen. The
streams of RandomState, unlike those of numpy's Generator, are frozen, so the order is
the same with every version and on every machine. It takes 1 ms for 50,000 episodes and
56 ms for 1,000,000, once per epoch, and 8 bytes for each.
"""

from __future__ import annotations

import logging

import numpy as np

from tokenreel.dropin.document_heads import DocumentHeads
from tokenreel.dropin.episodes.draws import Draws
from tokenreel.dropin.episodes.training_config import TrainingConfig
from tokenreel.dropin.id_rows import IdRows
from tokenreel.errors import ConfigError, DamageError
from tokenreel.layouts.episode_files import MASK, records_of
from tokenreel.seeds import derive_key
from tokenreel.store.shard import Shard
from tokenreel.store.split import Split

logger = logging.getLogger(__name__)
ORDER_VERSION = 2  # 1 was a keyed permutation of (epoch_seed, split, epoch)
SEEDS = 2**32  # RandomState takes this many; a seed outside them is taken modulo


class EpisodeRows:
    """All episodes of a split that are long enough, in the order of the settings.

    name: the split that they are shown as; it decides what random mode draws.
    place: how many rows of all epochs were shown or dropped, or how many were drawn.
    """

    def __init__(self, split: Split, settings: TrainingConfig, *, pad_id: int, name: str) -> None:
        self.split, self.pad_id, self.name, self.place = split, pad_id, name, 0
        self.has_mask = split.has_weights
        self._settings = settings
        self._seq_len, self._batch_size = settings.block_size or 0, settings.batch_size or 0
        self._heads = DocumentHeads(split, self._seq_len, min_tokens=settings.episode_min_tokens)
        # Documents are numbered by where they start, which episodes.idx need not follow.
        episode_ids = records_of(split)[self._heads.documents]
        self._by_id = None if _ascends(episode_ids) else np.argsort(episode_ids)
        self._episode_ids = np.sort(episode_ids)
        self._order = (-1, np.empty(0, np.int64))  # an epoch and its rows
        self._in_epochs = settings.batch_sampling_mode != "random"
        # An epoch that fills no batch cannot drop its rest: nothing would ever be shown.
        self._drops_rest = settings.epoch_drop_last and self.num_rows >= self._batch_size
        key = derive_key("episodes", settings.epoch_seed, name)
        self._drawn = Draws(self.num_rows, key=key)
        self._ids = IdRows(split, self._seq_len)
        masks = [shard.weight_file for shard in split.shards if shard.weight_file is not None]
        self._floats = any(file.dtype.kind == "f" for file in masks)
        logger.info(
            "[EpisodeLoader] split=%s episodes=%d filtered=%d tokens=%d mask=%s",
            name,
            self.num_rows,
            (split.num_documents or 0) - self.num_rows,
            split.num_tokens,
            _spelled(self.has_mask),
        )

    @property
    def episode_ids(self) -> np.ndarray:
        """The numbers of the episodes that are rows, int64, ascending."""
        return self._episode_ids

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
        pairs = np.empty((len(index), 2), np.uint64)
        pairs[records_of(self.split)] = np.stack((starts, stops - starts), axis=1)
        return pairs

    @property
    def _only_shard(self) -> Shard:
        if len(self.split.shards) > 1:
            raise ConfigError(
                f"split {self.name} is not one array",
                expected="one shard",
                actual=len(self.split.shards),
                remedy="read it through tokenreel.open_store",
            )
        return self.split.shards[0]

    @property
    def epoch(self) -> int:
        """The epoch of the batch that was shown last; random mode has one epoch."""
        return max(self.place - 1, 0) // self.num_rows if self._in_epochs else 0

    @property
    def pos(self) -> int:
        """How many rows of that epoch were shown; num_rows when its last one was."""
        return self.place - self.epoch * self.num_rows if self._in_epochs else 0

    @property
    def order(self) -> np.ndarray:
        """The numbers of that epoch's episodes as they are shown, int64 [num_rows]."""
        if not self._in_epochs:
            return self._episode_ids
        return self._episode_ids[self._rows_of_epoch(self.epoch)]

    def choose(self) -> tuple[np.ndarray, int]:
        """Return the rows of the next batch, int64 [batch_size], and the place behind them."""
        if self._in_epochs:
            return self._next_rows()
        stop = self.place + self._batch_size
        return self._drawn.rows(self.place, self._batch_size), stop

    def _next_rows(self) -> tuple[np.ndarray, int]:
        """Return the next rows of an epoch; where it has too few, drop them or go on in the next.

        A split that is smaller than a batch goes on: its batch holds whole epochs one after the
        other, and then the first rows of the next, so that every row is in it before one is again.
        """
        place, num_rows = self.place, self.num_rows
        left = num_rows - place % num_rows
        if self._drops_rest and left < self._batch_size:
            place += left
        stop = place + self._batch_size
        for epoch in range(-(-place // num_rows), -(-stop // num_rows)):
            self._begin(epoch)
        parts = []
        for epoch in range(place // num_rows, -(-stop // num_rows)):
            first = epoch * num_rows
            parts.append(self._rows_of_epoch(epoch)[max(place - first, 0) : stop - first])
        return parts[0] if len(parts) == 1 else np.concatenate(parts), stop

    def _rows_of_epoch(self, epoch: int) -> np.ndarray:
        """Return the rows of an epoch in their order, int64 [num_rows]; one epoch is kept."""
        kept, order = self._order
        if kept != epoch:
            order = np.arange(self.num_rows)
            if self._settings.epoch_shuffle:
                seed = (self._settings.epoch_seed + epoch) % SEEDS
                order = np.random.RandomState(seed).permutation(self.num_rows).astype(np.int64)
            # Replaced as a pair, never altered: threads may share one.
            self._order = epoch, order
        return order

    def _begin(self, epoch: int) -> None:
        """Log that an epoch begins, after a check that the files still have their sizes."""
        rounded = self.num_rows if self._drops_rest else self.num_rows + self._batch_size - 1
        self.split.check_sizes()
        logger.info(
            "[EpisodeLoader] split=%s epoch=%d episodes=%d batches=%d shuffle=%s drop_last=%s "
            "pad_id=%d mask=%s",
            self.name,
            epoch,
            self.num_rows,
            rounded // self._batch_size,
            _spelled(self._settings.epoch_shuffle),
            _spelled(self._drops_rest),
            self.pad_id,
            _spelled(self.has_mask),
        )

    def gather(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return x, y and, where there is one, the mask of y, float32; all [rows, T]."""
        pieces = self._heads.pieces(rows if self._by_id is None else self._by_id[rows])
        if not self.has_mask:
            return self._ids.gather(pieces, pad_id=self.pad_id)
        x, y, mask = self._ids.gather_weighed(pieces, pad_id=self.pad_id)
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


def _ascends(numbers: np.ndarray) -> bool:
    return bool((numbers[:-1] < numbers[1:]).all())
