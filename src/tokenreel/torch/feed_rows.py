"""Rows by position, for frameworks that batch, share out and skip by index.

    rows = FeedRows(recipe)
    args = TrainingArguments(train_sampling_strategy="sequential", remove_unused_columns=False,
                             per_device_train_batch_size=n, ...)
    Trainer(model, args, train_dataset=rows, callbacks=[FeedCallback(rows)])

Position p is row p of the run. Accelerate gives process r of w the r-th n rows of each w·n,
which is the feed's own way of sharing out, and skips by counting positions: a run resumed
in the middle of an epoch, on any number of processes, has exactly the batches that were to
come. Rows taken in another order than the recipe's are refused, as a shuffling sampler would
undo mixtures and phases in silence; those of an evaluation (a recipe with `passes`) may be
taken in any order and number, as `eval_dataset` of a Trainer for instance. Rows of
pairs and of prompts are refused: a Trainer learns every label, rejected answers too.

Models of transformers shift labels themselves unless they are given `shift_labels`, so
both are here: `shift_labels` as the feed has them, and `labels` such that shifting gives
the same, less the last of each row. There is no attention_mask, because only without one,
and without a cache (`use_cache=False`, which the Trainer of transformers 5 sees to), does
transformers (4.53 and later) take the borders of packed documents from position_ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from tokenreel.display import count_of, named, never_raising
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.plain_labels import refuse_answers, refuse_prompts
from tokenreel.feed.recipe import Recipe
from tokenreel.torch.dataset import refuse_epochs_of_passes
from tokenreel.torch.ranks import agree, open_together, running
from tokenreel.torch.tensors import TensorBatch, Tensors

IGNORED = -100


class FeedRows(Dataset[TensorBatch]):
    """The rows of a run or, with `epoch_steps`, of so many steps of it and then of the next."""

    def __init__(
        self, feed: Feed | Recipe | str | PathLike[str], *, epoch_steps: int | None = None
    ) -> None:
        self.feed = open_together(feed)
        refuse_answers(self.feed.recipe)
        refuse_prompts(self.feed.recipe)
        if self.feed.recipe.grad_accum != 1:
            raise ConfigError(
                "rows are not made into microbatches here",
                expected="grad_accum of 1",
                actual=self.feed.recipe.grad_accum,
                remedy="set gradient_accumulation_steps instead",
            )
        refuse_epochs_of_passes(self.feed, epoch_steps)
        steps = self.feed.num_steps
        if epoch_steps is not None and (epoch_steps < 1 or (steps or 0) % epoch_steps):
            expected = ">= 1" if steps is None else f"a divisor of the run's {steps:,} steps"
            raise ConfigError("bad epoch_steps", expected=expected, actual=epoch_steps)
        self.epoch_steps = epoch_steps
        self._tensors = Tensors(["input_ids", "labels", "loss_weights", "position_ids"])
        self._epoch = 0
        self._agreed = False

    def __len__(self) -> int:
        """How many rows there are, in an epoch if it has a length; none of them is padding."""
        if self.feed.deal.num_rows is not None:
            return self.feed.deal.num_rows
        return (self.epoch_steps or len(self.feed)) * self.feed.recipe.global_batch_size

    def set_epoch(self, epoch: int) -> None:
        """Go on to another epoch; without epoch_steps there is one. Evaluations stay the same."""
        steps = self.feed.num_steps
        if self.feed.recipe.passes is not None:
            return
        if steps is not None and epoch * (self.epoch_steps or steps) >= steps:
            raise ConfigError(
                "the recipe has no further epoch",
                expected=f"{steps:,} steps in all",
                actual=f"epoch {epoch}",
                remedy="train for fewer epochs, or leave steps out of the recipe",
            )
        self._epoch = epoch

    def __getitem__(self, position: int) -> TensorBatch:
        if not 0 <= position < len(self):
            raise IndexError(f"row {position:,} of {len(self):,}")
        return self.__getitems__([position])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[TensorBatch]:
        """Return the rows of a batch of consecutive positions."""
        if running() and not self._agreed and get_worker_info() is None:
            agree(self.feed)
            self._agreed = True
        batch = self._gathered(positions)
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

    @never_raising
    def __repr__(self) -> str:
        endless = self.epoch_steps is None and self.feed.num_steps is None
        facts = ["rows without end" if endless else count_of(len(self), "row")]
        if self.epoch_steps is not None:
            facts += [f"epochs of {self.epoch_steps:,} steps", f"epoch {self._epoch}"]
        return named("FeedRows", facts, [repr(self.feed)])

    def _gathered(self, positions: Sequence[int]) -> TensorBatch:
        """Return the rows at positions of the epoch, a step at a time."""
        wanted = np.array(positions, np.int64)
        in_order = bool((np.diff(wanted) == 1).all()) or self.feed.recipe.passes is not None
        if not in_order or not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise ConfigError(
                "these are not rows of the run in its order",
                expected=f"consecutive positions below {len(self):,}",
                actual=_shown(positions),
                remedy='sample in sequence (train_sampling_strategy="sequential"); rows of a '
                "recipe with passes may be taken in any order",
            )
        steps, seats = np.divmod(
            self._epoch * len(self) + wanted, self.feed.recipe.global_batch_size
        )
        # Runs of positions that lie in one step.
        borders = np.flatnonzero(np.diff(steps)) + 1
        parts = [
            self._tensors(self.feed.rows(int(steps[run[0]]), seats[run]))
            for run in np.split(np.arange(len(wanted)), borders)
        ]
        if len(parts) == 1:
            return parts[0]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _shown(positions: Sequence[int]) -> str:
    few = ", ".join(f"{int(position):,}" for position in positions[:4])
    return f"{few}, … ({len(positions):,})" if len(positions) > 4 else few
