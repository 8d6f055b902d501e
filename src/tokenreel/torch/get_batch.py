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
from typing import Any

import torch

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.torch.loader import FeedLoader
from tokenreel.torch.ranks import ranks_of

Pair = tuple[torch.Tensor, torch.Tensor]
TRAIN = "train"


class GetBatch:
    """Call it with a split: inputs and labels, int32 and int64 [batch_size, block_size].

    folder: any store; `dtype` where it does not say it (uint16 for nanoGPT's files).
    block_size: tokens of a row.
    batch_size: rows of one call, on this process.
    gradient_accumulation_steps: calls of this process that make one step of the optimizer.
    seed: another seed, another order.
    device: where the tensors are.

    Ranks are those of torch.distributed. The rows of a step are batch_size ·
    gradient_accumulation_steps · processes, so with the division that nanoGPT makes a step has
    the same rows on one process and on eight.

    >>> import tempfile, numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> np.arange(1000, dtype="uint16").tofile(folder + "/train.bin")
    >>> get_batch = GetBatch(folder, block_size=8, batch_size=4, dtype="uint16")
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
        dtype: str | None = None,
        seed: int = 1337,
        device: torch.device | str | None = None,
    ) -> None:
        self._folder, self._dtype, self._device = folder, dtype, device
        self._shape, self._seed = (batch_size, block_size), seed
        self._num_calls = gradient_accumulation_steps
        _, world_size = ranks_of(None, None)
        self._training = self._loader(TRAIN, rows=batch_size * self._num_calls * world_size)
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
            self._microbatches = _pairs(self._training)
        return next(self._microbatches)

    def estimate(self, split: str) -> Pair:
        """Return a batch to estimate a loss on; training goes on as if nobody had asked.

        One process may ask alone. Training rows come in another order here than in training.
        """
        if split not in self._estimates:
            loader = self._loader(split, rows=self._shape[0], alone=True)
            self._estimates[split] = _pairs(loader)
        return next(self._estimates[split])

    def state_dict(self, step: int) -> dict[str, Any]:
        """Return the state to save where `step` (nanoGPT's iter_num) is the next to be trained."""
        here, self.feed.step = self.feed.step, step
        try:
            return self.feed.state_dict()
        finally:
            self.feed.step = here

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the first microbatch of the state's step; other data is refused."""
        self._training.load_state_dict(state)
        self._microbatches = None

    def _loader(self, split: str, *, rows: int, alone: bool = False) -> FeedLoader:
        source = Source(name=split, path=self._folder, split=split, dtype=self._dtype)
        recipe = Recipe(
            seq_len=self._shape[1],
            global_batch_size=rows,
            grad_accum=1 if alone else self._num_calls,
            seed=self._seed + alone,
            sources=[source],
        )
        rank, world_size = (0, 1) if alone else (None, None)
        fields = ("input_ids", "labels")
        return FeedLoader(
            recipe, rank=rank, world_size=world_size, fields=fields, device=self._device
        )


def _pairs(loader: FeedLoader) -> Iterator[Pair]:
    """Yield inputs and labels, microbatch after microbatch."""
    for batch in loader:
        inputs, labels = batch["input_ids"], batch["labels"]
        if inputs.ndim == 2:
            yield inputs, labels
        else:
            yield from zip(inputs, labels, strict=True)
