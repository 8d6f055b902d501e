"""Contract 003's dataset: fixed slices of flat token files, read through memory maps.

Sample i is seq_len tokens of one file; its inputs are the first seq_len - 1 of them and
its labels the last, so a trainer that wants T inputs asks for seq_len = T + 1. The rest
of a file that fills no sample is unused; an empty file, or one shorter than seq_len, has no
sample. With pack_sequences a document ends with its
EOS, and no label crosses to the next document:

    tokens  10 20  0 30 40      input_ids  10 20    0 30
                                labels     20  0 -100 40
                                doc_ids     0  0    0  1

One sample costs a cast; `batch` makes many at once in one call of the gather kernel.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from operator import index
from os import PathLike
from typing import Any

import numpy as np
import torch

from tokenreel.dropin.id_rows import IdRows
from tokenreel.dropin.mapped.token_files import open_token_files
from tokenreel.dropin.saved_state import count_of
from tokenreel.dropin.shard_windows import ShardWindows, one_piece_each
from tokenreel.dropin.tokenizer_facts import check_ids
from tokenreel.errors import ConfigError
from tokenreel.feed.gather import IGNORED
from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split

logger = logging.getLogger(__name__)
Sample = dict[str, torch.Tensor]


class MemoryMappedDataset(torch.utils.data.Dataset[Sample]):
    """The samples of all files in `data_dir` that match, `.npy` or `.bin`.

    Every file has a dtype of its own (token_files.py says what decides it); `dtype` declares
    that of .bin files. Ids are held against `vocab_size` where it or the metadata gives one.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str],
        seq_len: int,
        file_pattern: str = "*.npy",
        pack_sequences: bool = False,
        eos_token_id: int | None = None,
        *,
        dtype: str | None = None,
        vocab_size: int | None = None,
    ) -> None:
        if pack_sequences and (eos_token_id is None or eos_token_id < 0):
            raise ConfigError(
                "pack_sequences needs the id that ends a document",
                expected="eos_token_id >= 0",
                actual=eos_token_id,
                remedy="give eos_token_id, or a tokenizer_path where it can be looked up",
            )
        self.data_dir, self.seq_len, self.file_pattern = str(data_dir), seq_len, file_pattern
        self.pack_sequences, self.eos_token_id = pack_sequences, eos_token_id
        self._dtype, self._declared_vocab_size = dtype, vocab_size
        self._epoch = 0
        self._batches: SliceBatches | None = None
        store, split = open_token_files(data_dir, file_pattern, dtype=dtype, vocab_size=vocab_size)
        self.vocab_size = vocab_size or store.vocab_size
        self._make_fingerprint = store.make_fingerprint
        self._split: Split | None = split
        self._starts = slices_of(split, seq_len).row_starts.tolist()
        if not len(self):
            logger.warning("%s: no file has %d tokens, so there is no sample", data_dir, seq_len)
        logger.info(
            "MemoryMappedDataset: %d files, %d tokens, %d samples (seq_len=%d)",
            len(split.shards),
            split.num_tokens,
            len(self),
            seq_len,
        )

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, idx: int) -> Sample:
        number = index(idx)
        if not 0 <= number < len(self):
            raise IndexError(f"no sample {number:,} of {len(self):,}")
        file = bisect_right(self._starts, number) - 1
        start = (number - self._starts[file]) * self.seq_len
        shard = self.split.shards[file]
        tokens = shard.tokens[start : start + self.seq_len].astype(np.int64)
        if self.vocab_size is not None:
            check_ids(tokens, self.vocab_size, where=f"{shard.token_file.path}, token {start:,}")
        if self.pack_sequences:
            inputs, labels = tokens[None, :-1], tokens[None, 1:].copy()
            doc_ids = mark_documents(inputs, labels, eos_id=self.eos_token_id or 0)
            arrays = {"input_ids": inputs, "labels": labels, "doc_ids": doc_ids}
            return {name: torch.from_numpy(array[0]) for name, array in arrays.items()}
        tensor = torch.from_numpy(tokens)
        return {"input_ids": tensor[:-1], "labels": tensor[1:]}

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return several samples, gathered at once; torch's DataLoader asks for them so."""
        whole = self.batch(np.array(indices, np.int64))
        return [dict(zip(whole, row, strict=True)) for row in zip(*whole.values(), strict=True)]

    def batch(self, indices: np.ndarray) -> Sample:
        """Return the samples with these numbers as one batch, [B, seq_len - 1] each."""
        if self._batches is None:
            slices = slices_of(self.split, self.seq_len)
            eos_id = self.eos_token_id if self.pack_sequences else None
            self._batches = SliceBatches(slices, eos_id=eos_id, vocab_size=self.vocab_size)
        return {name: torch.from_numpy(array) for name, array in self._batches(indices).items()}

    @property
    def split(self) -> Split:
        """All files, as shards."""
        if self._split is None:
            raise ConfigError("the dataset is closed", where=self.data_dir)
        return self._split

    @cached_property
    def fingerprint(self) -> str:
        """What tells these tokens from others, wherever the folder is; reads some of them."""
        return self._make_fingerprint()

    def check_sizes(self) -> None:
        """Raise DamageError if a file has changed its size, before reading it dies by SIGBUS."""
        self.split.check_sizes()

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and how many samples there are; where in it one is, a sampler knows."""
        return {"epoch": self._epoch, "total_samples": len(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the epoch; where the state is of another number of samples, a warning says so."""
        self._epoch = count_of(state, "epoch", owner="dataset")
        if state.get("total_samples", len(self)) != len(self):
            logger.warning(
                "%s: the state is of a dataset of %s samples, here are %d",
                self.data_dir,
                state["total_samples"],
                len(self),
            )

    def close(self) -> None:
        """Give the mapped files back; what was read stays, nothing more can be."""
        self._split = self._batches = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as arguments: a worker process maps the files itself."""
        given = (self.data_dir, self.seq_len, self.file_pattern)
        packing = (self.pack_sequences, self.eos_token_id)
        declared = {"dtype": self._dtype, "vocab_size": self._declared_vocab_size}
        return _reopened, ((*given, *packing), declared, self.state_dict())


def _reopened(
    given: tuple[Any, ...], declared: dict[str, Any], state: dict[str, Any]
) -> MemoryMappedDataset:
    dataset = MemoryMappedDataset(*given, **declared)
    dataset.load_state_dict(state)
    return dataset


def slices_of(split: Split, seq_len: int) -> ShardWindows:
    """Return the samples of all files: slices that share no token."""
    return ShardWindows(split, seq_len, stride=seq_len)


class SliceBatches:
    """Makes batches of slices; with an `eos_id`, marks documents in them."""

    def __init__(self, slices: ShardWindows, *, eos_id: int | None, vocab_size: int | None) -> None:
        self._slices, self._eos_id, self._vocab_size = slices, eos_id, vocab_size
        kinds = sorted({shard.token_file.dtype.str for shard in slices.split.shards})
        self._rows = [_Rows(slices, kind) for kind in kinds]

    def __call__(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return input_ids, labels and, with documents, doc_ids, int64 [B, S - 1]."""
        inputs, labels = self._gather(self._slices.pieces(indices))
        if self._vocab_size is not None:
            where = self._slices.split.shards[0].token_file.path.parent
            check_ids(inputs, self._vocab_size, where=where)
            check_ids(labels[:, -1], self._vocab_size, where=where)
        if self._eos_id is None:
            return {"input_ids": inputs, "labels": labels}
        doc_ids = mark_documents(inputs, labels, eos_id=self._eos_id)
        return {"input_ids": inputs, "labels": labels, "doc_ids": doc_ids}

    def _gather(self, pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
        if len(self._rows) == 1:
            return self._rows[0].ids.gather(pieces)
        # The kernel takes shards of one dtype: a call for each dtype, put back where they belong.
        both = np.empty((2, pieces.num_rows, self._slices.num_slots - 1), np.int64)
        for rows in self._rows:
            number_there = rows.numbers[pieces.shard]  # -1: the row is of another dtype
            mine = np.flatnonzero(number_there >= 0)
            if len(mine):
                same = one_piece_each(len(mine), self._slices.num_slots)
                part = Pieces(shard=number_there[mine], start=pieces.start[mine], **same)
                both[:, mine] = rows.ids.gather(part)
        return both[0], both[1]


class _Rows:
    """The rows of all shards of one dtype; `numbers` [shards] says which of them a shard is."""

    def __init__(self, slices: ShardWindows, kind: str) -> None:
        is_mine = [shard.token_file.dtype.str == kind for shard in slices.split.shards]
        self.numbers = np.where(is_mine, np.cumsum(is_mine) - 1, -1)
        mine = [shard for shard, yes in zip(slices.split.shards, is_mine, strict=True) if yes]
        self.ids = IdRows(Split(slices.split.name, mine), slices.num_slots - 1)


def mark_documents(input_ids: np.ndarray, labels: np.ndarray, *, eos_id: int) -> np.ndarray:
    """Ignore the labels that cross documents, in place; return the document of each input.

    All int64 [rows, T], contiguous; documents count from 0 in each row.

    >>> labels = np.array([[20, 0, 30, 40]])
    >>> mark_documents(np.array([[10, 20, 0, 30]]), labels, eos_id=0).tolist(), labels.tolist()
    ([[0, 0, 0, 1]], [[20, 0, -100, 40]])
    """
    rows, width = input_ids.shape
    ends = np.flatnonzero(input_ids == eos_id)
    labels.reshape(-1)[ends] = IGNORED
    # A document begins with a row and behind each end; ends are few, so documents are
    # numbered one by one and then spread over their tokens.
    row_starts = np.arange(0, rows * width, width)
    behind = ends + 1
    begins = np.concatenate((row_starts, behind[behind % width != 0], [rows * width]))
    begins.sort()
    numbers = np.arange(len(begins) - 1)
    numbers -= np.searchsorted(begins, row_starts)[begins[:-1] // width]
    lengths = begins[1:] - begins[:-1]
    doc_ids: np.ndarray = np.repeat(numbers, lengths).reshape(rows, width)
    return doc_ids
