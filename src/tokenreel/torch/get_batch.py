"""`get_batch(split)`, as training scripts in the manner of nanoGPT have it, over token files.

    get_batch = GetBatch("data/openwebtext", block_size=1024, batch_size=12, device="cuda")
    X, Y = get_batch("train")

A call gives the rows of one microbatch. What the script draws at random is here in an order
that is known beforehand: each pass over the tokens shows every window once, and the rows of a
step are the same on any number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.layouts.flat import BareTokens
from tokenreel.layouts.metadata import read_metadata
from tokenreel.torch.loader import FeedLoader
from tokenreel.torch.ranks import ranks_of

Pair = tuple[torch.Tensor, torch.Tensor]
TRAIN = "train"
IGNORED = -100  # as the labels of a feed have it


class GetBatch:
    """Call it with a split: inputs and labels, both int64 [batch_size, block_size].

    folder: train.bin and val.bin, or any store.
    block_size: tokens of a row.
    batch_size: rows of one call, on this process.
    gradient_accumulation_steps: calls of this process that make one step of the optimizer.
    dtype: that of the tokens, where nothing declares it; nanoGPT's prepare.py writes uint16.
    ignore_index: the label of what is not to be learnt, as the loss of the model has it; nanoGPT's
        has -1. Only the last row of a split is ever filled up so.
    seed: another seed, another order.
    device: where the tensors are.
    rank, world_size: those of torch.distributed, unless given.

    The rows of a step are batch_size · gradient_accumulation_steps · processes, so with the
    division that nanoGPT makes a step has the same rows on one process and on eight.

    >>> import tempfile, numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> np.arange(1001, dtype="uint16").tofile(folder + "/train.bin")
    >>> get_batch = GetBatch(folder, block_size=8, batch_size=4)
    >>> X, Y = get_batch("train")
    >>> X.shape, bool((Y == X + 1).all())
    (torch.Size([4, 8]), True)
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        block_size: int,
        batch_size: int,
        gradient_accumulation_steps: int = 1,
        dtype: str = "uint16",
        ignore_index: int = -1,
        seed: int = 1337,
        device: torch.device | str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self._folder, self._device = folder, device
        self._dtype = dtype if _declares_no_dtype(Path(folder)) else None
        self._shape, self._seed = (batch_size, block_size), seed
        self._num_calls, self._ignore_index = gradient_accumulation_steps, ignore_index
        here = ranks_of(rank, world_size)
        rows = batch_size * self._num_calls * here[1]
        self._training = self._loader(TRAIN, rows=rows, rank=rank, world_size=world_size)
        self._microbatches: Iterator[Pair] | None = None
        self._estimates: dict[str, Iterator[Pair]] = {}

    @property
    def feed(self) -> Feed:
        """The feed of the training split: explain, where, epoch_of, …"""
        return self._training.feed

    def __call__(self, split: str) -> Pair:
        """Return the next microbatch of training, or, of another split, that of an estimate."""
        if split != TRAIN:
            return self.estimate(split)
        if not torch.is_grad_enabled():
            raise ConfigError(
                "a batch of training was asked for where no gradients are kept: it would be lost",
                remedy="in estimate_loss, write get_batch.estimate(split)",
            )
        if self._microbatches is None:
            self._microbatches = self._pairs(self._training)
        return next(self._microbatches)

    def estimate(self, split: str) -> Pair:
        """Return a batch to estimate a loss on; training goes on as if nobody had asked.

        One process may ask alone. Training rows come in another order here than in training.
        """
        if split not in self._estimates:
            loader = self._loader(split, rows=self._shape[0], rank=0, world_size=1, alone=True)
            self._estimates[split] = self._pairs(loader)
        return next(self._estimates[split])

    def state_dict(self, step: int) -> dict[str, Any]:
        """Return the state to save where `step` (nanoGPT's iter_num) is the next to be trained."""
        if not isinstance(step, int) or step < 0:
            raise ConfigError("bad step", expected="a whole number >= 0", actual=f"{step!r:.60}")
        here, self.feed.step = self.feed.step, step
        try:
            return self.feed.state_dict()
        finally:
            self.feed.step = here

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the first microbatch of the state's step; other data is refused."""
        self._training.load_state_dict(state)
        self._microbatches = None

    def _loader(
        self,
        split: str,
        *,
        rows: int,
        rank: int | None,
        world_size: int | None,
        alone: bool = False,
    ) -> FeedLoader:
        source = Source(name=split, path=self._folder, split=split, dtype=self._dtype)
        recipe = Recipe(
            seq_len=self._shape[1],
            global_batch_size=rows,
            grad_accum=1 if alone else self._num_calls,
            seed=self._seed + alone,
            sources=[source],
        )
        fields = ("input_ids", "labels")
        return FeedLoader(
            recipe, rank=rank, world_size=world_size, fields=fields, device=self._device
        )

    def _pairs(self, loader: FeedLoader) -> Iterator[Pair]:
        """Yield inputs and labels, microbatch after microbatch."""
        for batch in loader:
            inputs, labels = batch["input_ids"], batch["labels"]
            labels = labels.masked_fill(labels == IGNORED, self._ignore_index)
            if inputs.ndim == 2:
                yield inputs, labels
            else:
                yield from zip(inputs, labels, strict=True)

    def __repr__(self) -> str:
        rows, tokens = self._shape
        return f"GetBatch({str(self._folder)!r}, {rows:,} rows of {tokens:,} tokens a call)"


def _declares_no_dtype(path: Path) -> bool:
    """Tell whether a path holds bare tokens, and nothing beside them says of which dtype."""
    folder = path.parent if path.is_file() else path
    return BareTokens.fits(path) is None and read_metadata(folder).dtype is None
