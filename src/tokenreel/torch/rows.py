"""Rows by position, for frameworks that batch, share out and skip by index.

    rows = FeedRows(recipe)
    args = TrainingArguments(train_sampling_strategy="sequential", remove_unused_columns=False,
                             per_device_train_batch_size=n, ...)
    Trainer(model, args, train_dataset=rows, callbacks=[FeedCallback(rows)])

Position p is row p of the run. Accelerate gives process r of w the r-th n rows of each w·n,
which is the feed's own way of sharing out, and skips by counting positions: a run resumed
in the middle of an epoch, on any number of processes, has exactly the batches that were to
come. n must divide the recipe's batch_size. Rows taken in another order than the recipe's
are refused, as a shuffling sampler would undo mixtures and phases in silence.

Models of transformers shift labels themselves unless they are given `shift_labels`, so
both are here: `shift_labels` as the feed has them, and `labels` such that shifting gives
the same, less the last of each row. There is no attention_mask, because only without one
does transformers (4.53 and later) take the borders of packed documents from position_ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch
from torch.utils.data import Dataset, get_worker_info

from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.feed.reopen import reopened
from tokenreel.torch.ranks import agree, open_together, running
from tokenreel.torch.tensors import TensorBatch, Tensors

IGNORED = -100


class FeedRows(Dataset[TensorBatch]):
    """The rows of a run: one pass over the recipe's steps or, without any, over all sources."""

    def __init__(self, feed: Feed | Recipe | str | PathLike[str]) -> None:
        self.feed = open_together(feed)
        if self.feed.recipe.accumulate != 1:
            raise ConfigError(
                "rows are not made into microbatches here",
                expected="accumulate of 1",
                actual=self.feed.recipe.accumulate,
                remedy="set gradient_accumulation_steps instead",
            )
        self._tensors = Tensors(["input_ids", "labels", "loss_weights", "position_ids"])
        self._epoch = 0
        self._agreed = False

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.feed) * self.feed.recipe.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Go on to another pass; a recipe with a number of steps has one."""
        if epoch > 0 and self.feed.recipe.steps is not None:
            raise ConfigError(
                "the recipe has no further epoch",
                expected=f"{self.feed.recipe.steps:,} steps in all",
                actual=f"epoch {epoch}",
                remedy="train for one epoch, or leave steps out of the recipe",
            )
        self._epoch = epoch

    def __getitem__(self, position: int) -> TensorBatch:
        return self.__getitems__([position])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[TensorBatch]:
        """Return the rows of a batch of consecutive positions."""
        if running() and not self._agreed and get_worker_info() is None:
            agree(self.feed)
            self._agreed = True
        batch = self._tensors(self._batch(positions))
        weights = batch.pop("loss_weights")
        if ((weights != 0) & (weights != 1)).any():
            raise ConfigError(
                "the rows have loss weights other than 0 and 1",
                remedy="this loss would ignore them: use FeedLoader and loss_sum",
            )
        batch["shift_labels"] = batch["labels"]
        unshifted = torch.full_like(batch["labels"], IGNORED)
        unshifted[:, 1:] = batch["labels"][:, :-1]
        batch["labels"] = unshifted
        return [{name: batch[name][row] for name in batch} for row in range(len(positions))]

    def _batch(self, positions: Sequence[int]) -> Batch:
        first, count = int(positions[0]), len(positions)
        size = self.feed.recipe.batch_size
        consecutive = all(p == first + k for k, p in enumerate(positions))
        if not consecutive or size % count or first % count or not 0 <= first < len(self):
            raise ConfigError(
                "these rows are no part of a step",
                expected=f"consecutive positions, a count that divides {size:,}",
                actual=_shown(positions),
                remedy='sample in sequence (train_sampling_strategy="sequential") and choose '
                "a batch size that divides the recipe's",
            )
        step, within = divmod(self._epoch * len(self) + first, size)
        return self.feed.batch(step, rank=within // count, world=size // count)

    def __getstate__(self) -> dict[str, Any]:
        """Send the recipe, never the tokens."""
        return {
            **self.__dict__,
            "feed": (self.feed.recipe, self.feed.state_dict()),
            "_tensors": self._tensors.fields,
        }

    def __setstate__(self, sent: dict[str, Any]) -> None:
        self.__dict__.update(sent)
        self.feed = reopened(*sent["feed"])
        self._tensors = Tensors(sent["_tensors"])


def _shown(positions: Sequence[int]) -> str:
    few = ", ".join(f"{int(position):,}" for position in positions[:4])
    return f"{few}, … ({len(positions):,})" if len(positions) > 4 else few
