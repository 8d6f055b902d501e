"""Losses and gradients of some steps and of an evaluation, on one rank or on many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tests.adapters.making import SEQ_LEN, VOCAB, mixed_recipe, val_recipe
from tests.adapters.tiny_model import TinyModel, segmented
from torch import Tensor

from tokenreel.torch import FeedLoader, evaluate, loss_by_source, loss_sum

STEPS = 3
Add = Callable[[Tensor], Tensor]


def figures(folder: Path, add: Add) -> dict[str, np.ndarray]:
    """Return figures by name; `add` adds up what the ranks have."""
    model = TinyModel(VOCAB, SEQ_LEN, dtype=torch.float64)
    found: dict[str, np.ndarray] = {}
    for grad_accum in (1, 2):
        steps = one_by_one(model, folder, grad_accum)
        for name, tensors in zip(("losses", "gradients", "by_source"), steps, strict=True):
            found[f"{name}, grad_accum {grad_accum}"] = add(torch.stack(tensors)).numpy()
        result = evaluate(model, val_recipe(folder, grad_accum=grad_accum), forward=segmented)
        weights = [result.weight, *(part.weight for part in result.by_source.values())]
        values = np.array([*result.as_dict().values(), *weights])
        found[f"evaluation, grad_accum {grad_accum}"] = values
    return found


def one_by_one(
    model: TinyModel, folder: Path, grad_accum: int
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return this rank's part of the loss of each step, its gradients, and sums by source."""
    loader = FeedLoader(mixed_recipe(folder, grad_accum=grad_accum, steps=STEPS))
    losses, gradients, by_source = [], [], []
    for step, batch in enumerate(loader):
        micros = [batch] if grad_accum == 1 else [{n: batch[n][a] for n in batch} for a in range(2)]
        model.zero_grad()
        total, sums = torch.zeros(1, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
        for micro in micros:
            logits = segmented(model, micro)
            loss = loss_sum(logits, micro) / loader.feed.weight_sum(step)
            loss.backward()
            total += loss.detach()
            sums += torch.stack(loss_by_source(logits.detach(), micro, num_sources=3))
        flat = [p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]
        losses.append(total)
        gradients.append(torch.cat(flat))
        by_source.append(sums)
    return losses, gradients, by_source
