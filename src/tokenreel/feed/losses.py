"""Losses of a run, by source: sums and weights that add up over batches and ranks.

A mean over tokens is a sum of losses over a sum of weights, taken once at the end. Means of
batches or ranks are never averaged: they have different numbers of trained tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanLoss:
    """The mean loss over `weight` trained tokens; NaN where there are none."""

    loss: float
    weight: float

    @property
    def perplexity(self) -> float:
        """exp of the mean loss; inf where that is too large for a float."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(MeanLoss):
    """The mean loss over all trained tokens of a run, and over those of each source."""

    steps: int
    by_source: Mapping[str, MeanLoss]

    def as_dict(self) -> dict[str, float]:
        """Return all figures under flat names, as loggers take them.

        >>> part = MeanLoss(loss=0.0, weight=2.0)
        >>> Evaluation(loss=0.0, weight=2.0, steps=1, by_source={"web": part}).as_dict()
        {'loss': 0.0, 'perplexity': 1.0, 'web/loss': 0.0, 'web/perplexity': 1.0}
        """
        figures = {"loss": self.loss, "perplexity": self.perplexity}
        for name, part in self.by_source.items():
            figures |= {f"{name}/loss": part.loss, f"{name}/perplexity": part.perplexity}
        return figures


class LossSums:
    """Sums of losses and of weights of each source, float64 [S], over any number of batches.

    >>> sums = LossSums(["web", "chat"])
    >>> sums.add([3.0, 2.0], [2.0, 1.0])
    >>> sums.add([1.0, 0.0], [2.0, 0.0])
    >>> result = sums.mean()
    >>> result.loss, result.by_source["web"].loss
    (1.2, 1.0)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.steps = 0
        self.table = np.zeros((2, len(self.names)))

    def add(
        self, sums: Sequence[float] | np.ndarray, weights: Sequence[float] | np.ndarray
    ) -> None:
        """Add what a batch has: losses and weights of each source."""
        self.table += np.array([sums, weights], np.float64)
        self.steps += 1

    def mean(self) -> Evaluation:
        """Return the means over all that was added."""
        parts = {
            name: _mean(float(loss), float(weight))
            for name, loss, weight in zip(self.names, *self.table, strict=True)
        }
        whole = _mean(math.fsum(self.table[0]), math.fsum(self.table[1]))
        return Evaluation(loss=whole.loss, weight=whole.weight, steps=self.steps, by_source=parts)


def _mean(loss: float, weight: float) -> MeanLoss:
    return MeanLoss(loss=loss / weight if weight else math.nan, weight=weight)
