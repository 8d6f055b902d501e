"""The loss of a rank's part of a step, as sums: over all its tokens, or for each source.

Sums of parts add up to the sum of the step however it is shared out over ranks and
microbatches; divided by `feed.weight_sum(step)` they are the mean over its tokens. A
mean of means is not: parts have different numbers of trained tokens.

A batch with groups of answers (rows of pairs) is refused unless `answers` says what they count:
"left_out", the rows beside them alone; "as_text", rejected answers like any text. What trains
answers is in preference_loss.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn.functional import cross_entropy

from tokenreel.feed.plain_labels import OfAnswers, check_answers


def loss_sum(
    logits: torch.Tensor, batch: Mapping[str, torch.Tensor], *, answers: OfAnswers | None = None
) -> torch.Tensor:
    """Return the weighted sum of the cross entropies of all labels, as a scalar.

    >>> batch = {"labels": torch.tensor([[1, -100]]), "loss_weights": torch.tensor([[0.5, 0.0]])}
    >>> round(float(loss_sum(torch.zeros(1, 2, 4), batch)), 4)  # half of log(4)
    0.6931
    """
    return _weighted(logits, batch, _weights(batch, answers)).sum()


def loss_by_source(
    logits: torch.Tensor,
    batch: Mapping[str, torch.Tensor],
    *,
    num_sources: int,
    answers: OfAnswers | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weighted sum of the losses of each source, and that of its weights, float64.

    Both [num_sources], ready to be added over batches and ranks; divided by each other they are
    the mean loss of each source over its trained tokens. Sources are numbered as in the recipe.

    >>> batch = {"labels": torch.tensor([[1, -100], [2, 3]]), "source_ids": torch.tensor([2, 0]),
    ...     "loss_weights": torch.tensor([[0.5, 0.0], [1.0, 1.0]])}
    >>> sums, weights = loss_by_source(torch.zeros(2, 2, 4), batch, num_sources=3)
    >>> weights.tolist(), (sums / weights)[[0, 2]].round(decimals=4).tolist()
    ([2.0, 0.0, 0.5], [1.3863, 1.3863])
    """
    length = batch["labels"].shape[-1]
    # A row that only fills up the shape has source -1 and weighs nothing, wherever it is added.
    sources = batch["source_ids"].reshape(-1).long().clamp(min=0)
    wide = torch.float32 if logits.device.type == "mps" else torch.float64  # which MPS lacks
    each = _weights(batch, answers)
    losses = _weighted(logits, batch, each).reshape(-1, length).to(wide).sum(-1)
    weights = each.reshape(-1, length).to(wide).sum(-1)
    zeros = losses.new_zeros(num_sources)
    return zeros.index_add(0, sources, losses), zeros.index_add(0, sources, weights)


def _weights(batch: Mapping[str, torch.Tensor], answers: OfAnswers | None) -> torch.Tensor:
    """Return the weight of each label, flat; 0 in answers that are left out."""
    check_answers(batch, answers)
    weights = batch["loss_weights"].reshape(-1)
    if answers != "left_out" or "group_ids" not in batch:
        return weights
    return weights * (batch["group_ids"].reshape(-1) < 0)


def _weighted(
    logits: torch.Tensor, batch: Mapping[str, torch.Tensor], weights: torch.Tensor
) -> torch.Tensor:
    """Return the loss of each label times its weight, flat."""
    labels, flat = batch["labels"].reshape(-1), logits.reshape(-1, logits.shape[-1])
    wide = flat if flat.dtype == torch.float64 else flat.float()
    each = cross_entropy(wide, labels, reduction="none")
    return each * weights
