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
from tokenreel.rows.pieces import Pieces
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
    first = _is_first(pieces)
    weights, _ = _weigh_pieces(plan, pieces, first)
    # Weights of pieces become those of segments, then those of rows.
    segments = np.add.reduceat(weights, np.flatnonzero(first))
    row_of = pieces.row[first]
    return (
        np.bincount(row_of, weights=segments, minlength=pieces.num_rows),
        np.bincount(row_of[segments > 0], minlength=pieces.num_rows),
    )


def count_rows(pieces: Pieces, *, seq_len: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many slots of rows hold a token, and their segments, int64; no token is read."""
    # A row has a token more than slots: its last token is a label alone, and so is a segment of it.
    begins = np.cumsum(pieces.length) - pieces.length
    begins -= np.repeat(begins[pieces.row_offsets[:-1]], np.diff(pieces.row_offsets))
    used = np.minimum(_by_row(pieces, pieces.length), seq_len)
    return used, _by_row(pieces, _is_first(pieces) & (begins < seq_len))


def count_trained(plan: RowPlan, pieces: Pieces) -> np.ndarray:
    """Return how many labels of rows of a plan weigh something, int64; no token is read."""
    _, trained = _weigh_pieces(plan, pieces, _is_first(pieces))
    return _by_row(pieces, trained)


def _by_row(pieces: Pieces, values: np.ndarray) -> np.ndarray:
    return np.bincount(pieces.row, weights=values, minlength=pieces.num_rows).astype(np.int64)


def _is_first(pieces: Pieces) -> np.ndarray:
    """Return which pieces begin a row or a segment, bool: their first token is nobody's target."""
    first = pieces.first.copy()
    first[pieces.row_offsets[:-1]] = True
    return first


def _weigh_pieces(
    plan: RowPlan, pieces: Pieces, first: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss weights of each piece, added up (float64), and how many are above 0."""
    spans = spans_of(plan.split, pieces)
    if spans is None:
        targets = (pieces.length - first).astype(np.float64)
        return targets, targets
    # What each span weighs: its tokens inside its piece, without a first one, times its weight.
    owner = np.repeat(np.arange(len(pieces.length)), np.diff(spans.offsets))
    low = np.maximum(spans.start, first[owner])
    targets = np.maximum(np.minimum(spans.stop, pieces.length[owner]) - low, 0)
    weight = np.maximum(spans.weight, 0).astype(np.float64)
    sums, counts = (
        np.bincount(owner, weights=values, minlength=len(pieces.length))
        for values in (targets * weight, targets * (weight > 0))
    )
    return sums, counts
