"""The loss of a rank's part of a step, as a sum.

Sums of parts add up to the sum of the step however it is shared out over ranks and
microbatches; divided by `feed.weight_sum(step)` they are the mean over its tokens. A
mean of means is not: parts have different numbers of trained tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn.functional import cross_entropy


def loss_sum(logits: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the weighted sum of the cross entropies of all labels, as a scalar.

    >>> batch = {"labels": torch.tensor([[1, -100]]), "loss_weights": torch.tensor([[0.5, 0.0]])}
    >>> round(float(loss_sum(torch.zeros(1, 2, 4), batch)), 4)  # half of log(4)
    0.6931
    """
    labels = batch["labels"].reshape(-1)
    each = cross_entropy(logits.reshape(-1, logits.shape[-1]), labels, reduction="none")
    return (each * batch["loss_weights"].reshape(-1)).sum()
