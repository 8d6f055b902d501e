"""What losses of a global step are divided by, so that any split of it gives one mean.

    token mean     sum of loss_weights · loss           / tokens
    sample mean    sum of batch.sample_weights() · loss / samples

The sums run over all ranks and microbatches. A sample is a segment, a document or chat as
the model sees it: its loss is the weighted mean over its targets, and each sample that has
a target counts once; a document that is cut into several segments counts as several. Both
denominators are those of the whole global step on every rank, from the plan and the turns
or stored weights alone: no token is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tokenreel.feed.weights import spans_of
from tokenreel.rows.row_plan import RowPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """Of one global step: the sum of all loss weights, and how many samples have a target."""

    tokens: float
    samples: int


def add_up(weights: np.ndarray, samples: np.ndarray) -> Denominators:
    """Return the denominators of rows; their sum is rounded once, in whatever order it is made."""
    return Denominators(tokens=math.fsum(weights.tolist()), samples=int(samples.sum()))


def weigh_rows(plan: RowPlan, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of loss weights (float64) and the samples (int64) of rows of a plan."""
    pieces = plan.pieces(rows)
    # The first token of a row or segment is nobody's target.
    first = pieces.first.copy()
    first[pieces.row_offsets[:-1]] = True
    spans = spans_of(plan.split, pieces)
    if spans is None:
        weights = (pieces.length - first).astype(np.float64)
    else:
        # What each span weighs: its tokens inside its piece, without a first one, times its weight.
        owner = np.repeat(np.arange(len(pieces.length)), np.diff(spans.offsets))
        low = np.maximum(spans.start, first[owner])
        high = np.minimum(spans.stop, pieces.length[owner])
        weighed = np.maximum(high - low, 0) * np.maximum(spans.weight, 0).astype(np.float64)
        weights = np.bincount(owner, weights=weighed, minlength=len(pieces.length))
    # Weights of pieces become those of segments, then those of rows.
    segments = np.add.reduceat(weights, np.flatnonzero(first))
    row_of = pieces.row[first]
    return (
        np.bincount(row_of, weights=segments, minlength=pieces.num_rows),
        np.bincount(row_of[segments > 0], minlength=pieces.num_rows),
    )
