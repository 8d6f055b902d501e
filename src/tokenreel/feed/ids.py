"""Inputs and labels alone, where segments and positions are not asked for.

The same rows as gather.py's, in 16 bytes a slot and not 28. A row is one segment. Its
labels are the tokens that follow, whatever they weigh; what is left of a row is 0 and
-100 or, if padding is a token like any other, that in both. Stored weights, where they
are asked for, come out as they are stored, 0 where a label is padding. All of it is one
call of the kernel (native/ids.c); the numpy reference says what it does.
"""

from __future__ import annotations

import numpy as np

from tokenreel import native
from tokenreel.errors import VocabularyError
from tokenreel.feed.gather import IGNORED
from tokenreel.feed.memory import Memory
from tokenreel.feed.tokens import FEW_SHARDS, tokens_of, weights_of
from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split

Arrays = tuple[np.ndarray, ...]
ID, WEIGHT = np.dtype(np.int64), np.dtype(np.float32)


class IdRows:
    """Makes rows of a split, [rows, T] int64, in memory that is used again when it is free."""

    def __init__(self, split: Split, seq_len: int) -> None:
        self.split, self.seq_len = split, seq_len
        self._memory = Memory()
        mapped = split.shards[0].mode == "mmap"
        self._stays = mapped and len(split.shards) <= FEW_SHARDS  # what is found once holds always
        self._shards: Arrays | None = None
        self._weights: Arrays | None = None
        self._largest_id = int(np.iinfo(split.shards[0].token_file.dtype).max)

    def gather(self, pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels; what is left of a row is 0 and -100."""
        inputs, labels = self._memory.array((2, pieces.num_rows, self.seq_len), ID)
        gather_ids(*self._tokens(pieces), (inputs, labels), pad_id=0, label_pad=IGNORED)
        return inputs, labels

    def gather_padded(self, pieces: Pieces, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels; what is left of a row is `pad_id` in both."""
        self._check_padding(pad_id)
        inputs, labels = self._memory.array((2, pieces.num_rows, self.seq_len), ID)
        gather_ids(*self._tokens(pieces), (inputs, labels), pad_id=pad_id, label_pad=pad_id)
        return inputs, labels

    def gather_weighed(
        self, pieces: Pieces, pad_id: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same, and what the labels weigh by the stored weights, float32."""
        self._check_padding(pad_id)
        inputs, labels = self._memory.array((2, pieces.num_rows, self.seq_len), ID)
        out = inputs, labels, self._memory.array(inputs.shape, WEIGHT)
        stored = self._stored(pieces)
        gather_ids(*self._tokens(pieces), out, pad_id=pad_id, label_pad=pad_id, stored=stored)
        return out

    def _check_padding(self, pad_id: int) -> None:
        if pad_id > self._largest_id:
            file = self.split.shards[0].token_file
            raise VocabularyError(
                "the id to pad with does not fit the token dtype",
                where=file.path,
                expected=f"0 to {self._largest_id:,} ({file.dtype.name})",
                actual=pad_id,
            )

    def _tokens(self, pieces: Pieces) -> tuple[Arrays, np.ndarray, Pieces]:
        if self._shards is not None:
            return self._shards, pieces.shard, pieces
        found = tokens_of(self.split, pieces)
        if self._stays:
            self._shards = found[0]
        return found

    def _stored(self, pieces: Pieces) -> Arrays:
        if self._weights is not None:
            return self._weights
        found = weights_of(self.split, pieces)
        if self._stays:
            self._weights = found
        return found


def gather_ids(
    shards: Arrays,
    buffer: np.ndarray,
    pieces: Pieces,
    out: Arrays,
    *,
    pad_id: int,
    label_pad: int,
    stored: Arrays = (),
) -> None:
    """Fill inputs, labels and, if weights are stored, what the labels weigh.

    `buffer` says which of `shards` each piece is in, and of `stored`, which has a uint8 or
    a float32 for each token. What is left of a row is `pad_id` in inputs and `label_pad`
    in labels.
    """
    extension = native.extension()
    if extension is None:
        gather_ids_reference(
            shards, buffer, pieces, out, pad_id=pad_id, label_pad=label_pad, stored=stored
        )
        return
    dtype = shards[0].dtype
    extension.gather_ids(
        shards,
        f"{dtype.kind}{dtype.itemsize}",
        out[0].shape[1],
        pad_id,
        label_pad,
        pieces.row_offsets,
        buffer,
        pieces.start,
        pieces.length,
        *out,
        *((stored,) if stored else ()),
    )


def gather_ids_reference(
    shards: Arrays,
    buffer: np.ndarray,
    pieces: Pieces,
    out: Arrays,
    *,
    pad_id: int,
    label_pad: int,
    stored: Arrays = (),
) -> None:
    """Do the same row by row: join the pieces, then shift."""
    for row in range(pieces.num_rows):
        mine = range(pieces.row_offsets[row], pieces.row_offsets[row + 1])
        runs = [
            (buffer[p], slice(pieces.start[p], pieces.start[p] + pieces.length[p])) for p in mine
        ]
        tokens = np.concatenate([np.empty(0, ID), *(shards[shard][run] for shard, run in runs)])
        rest = out[0].shape[1] + 1 - len(tokens)
        out[0][row] = np.concatenate((tokens, np.full(rest, pad_id)))[:-1]
        out[1][row] = np.concatenate((tokens, np.full(rest, label_pad)))[1:]
        if stored:
            weights = [stored[shard][run].astype(WEIGHT) for shard, run in runs]
            out[2][row] = np.concatenate((*weights, np.zeros(rest, WEIGHT)))[1:]
