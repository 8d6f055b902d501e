"""Rows whose mask is not stored and has to be found by scanning: contract 002's.

Trained are the tokens behind an opening id, through the next closing id. What is padding
is known by position, so a closing id that pads is never trained. A scan believes every
id it sees; where there are turns or weights, they are carried (gather.py) instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.feed.gather import IGNORED, empty_rows, gather
from tokenreel.feed.tokens import tokens_of
from tokenreel.rows.heads import Heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """Rows [n, T] int64: inputs, the tokens that follow them, and those that are trained.

    Inputs and targets are padded alike; labels are -100 where nothing is trained.
    """

    inputs: np.ndarray
    targets: np.ndarray
    labels: np.ndarray


def gather_scanned(
    heads: Heads, rows: np.ndarray, *, opening_id: int, closing_id: int, pad_id: int
) -> Scanned:
    """Return the rows with these numbers, int64 [n], in memory of their own."""
    shards, buffer, pieces = tokens_of(heads.split, heads.pieces(rows))
    out = empty_rows(len(rows), heads.seq_len)
    everyone = np.arange(len(rows))
    gather(shards, pieces, out, out_row=everyone, buffer=buffer, spans=None, pad_id=pad_id)
    inputs, targets = out.input_ids, out.labels
    labels = scan_labels(inputs, targets, opening_id=opening_id, closing_id=closing_id)
    targets[targets == IGNORED] = pad_id  # nothing but padding is ignored so far
    return Scanned(inputs=inputs, targets=targets, labels=labels)


def scan_labels(
    inputs: np.ndarray, labels: np.ndarray, *, opening_id: int, closing_id: int
) -> np.ndarray:
    """Return the labels, [n, T], ignored where the input before them is not inside a span.

    >>> ids = np.array([[3, 8, 4, 9]])
    >>> scan_labels(ids, np.array([[8, 4, 9, -100]]), opening_id=3, closing_id=4).tolist()
    [[8, 4, -100, -100]]
    """
    opens = inputs == opening_id
    places = np.arange(inputs.shape[1], dtype=np.int32)
    # One number per mark, growing from left to right, odd where it opens: the last mark up to
    # an input tells by its lowest bit whether the label is inside.
    marks = np.where(opens | (inputs == closing_id), 2 * places + 2 + opens, 0)
    inside = np.maximum.accumulate(marks, axis=1) & 1
    return np.where(inside.astype(bool) & (labels != opening_id), labels, IGNORED)
