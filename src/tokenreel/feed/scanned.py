"""The assistant mask of contracts 001 and 002, found by scanning ids.

    ids    SYS 50 EOT  USR 51 EOT  ASST 52 53 EOT  EOT      the last EOT is padding
    mask    ·  ·   ·    ·  ·   ·    ·    ×  ×  ×    ·

There is one function, `assistant_mask`, and both contracts ask it. A scan believes every
id it sees; where there are turns or weights, they are carried (gather.py) instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.feed.gather import IGNORED, empty_rows, gather
from tokenreel.feed.tokens import tokens_of
from tokenreel.layouts.cache_parts import SpecialIds
from tokenreel.rows.heads import Heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """Rows [n, T] int64: inputs, the tokens that follow them, and those that are trained.

    Inputs and targets are padded alike; labels are -100 where nothing is trained.
    """

    inputs: np.ndarray
    targets: np.ndarray
    labels: np.ndarray


def gather_scanned(heads: Heads, rows: np.ndarray, *, ids: SpecialIds) -> Scanned:
    """Return the rows with these numbers, int64 [n], in memory of their own.

    Rows are padded with the end-of-turn id, which is known by its position and never trained.
    """
    shards, buffer, pieces = tokens_of(heads.split, heads.pieces(rows))
    out = empty_rows(len(rows), heads.seq_len)
    everyone = np.arange(len(rows))
    gather(shards, pieces, out, out_row=everyone, buffer=buffer, spans=None, pad_id=ids.eot)
    inputs, targets = out.input_ids, out.labels
    is_padding = targets == IGNORED  # nothing but padding is ignored so far
    targets[is_padding] = ids.eot
    # All T + 1 tokens of a row, int64 [n, T + 1]: the last one is a target and no input.
    tokens = np.concatenate((inputs, targets[:, -1:]), axis=1)
    trained = assistant_mask(tokens, ids=ids)[:, 1:] & ~is_padding
    return Scanned(inputs=inputs, targets=targets, labels=np.where(trained, targets, IGNORED))


def assistant_mask(tokens: np.ndarray, *, ids: SpecialIds) -> np.ndarray:
    """Return which tokens of each row are trained: bool, shaped like `tokens` [n, length].

    A span opens behind the assistant's id and closes with the next end-of-turn id, which
    is trained too. A role id in front of that closes the span as well and is not trained.
    There the contracts contradict themselves: 001 trains all "subsequent tokens until you
    see eot_id", and computes no loss on role ids, system content and user content. The
    second sentence is followed, because it never trains a role id. A span that neither
    closes lasts to the end of the row.

    >>> ids = SpecialIds(roles=(1, 2, 3), asst=3, eot=4)
    >>> assistant_mask(np.array([[3, 8, 4, 9], [3, 8, 2, 9]]), ids=ids).astype(int).tolist()
    [[0, 1, 1, 0], [0, 1, 0, 0]]
    """
    opens = tokens == ids.asst
    is_role = opens.copy()
    for role in ids.roles:
        is_role |= tokens == role
    places = np.arange(tokens.shape[1], dtype=np.int32)
    # One number per role id and end-of-turn id, growing from left to right, odd where a span
    # opens: the lowest bit of the last one up to a token tells whether the next is in a span.
    marks = np.where(is_role | (tokens == ids.eot), 2 * places + 2 + opens, 0)
    is_inside = (np.maximum.accumulate(marks, axis=1) & 1).astype(bool)
    trained = np.zeros(tokens.shape, bool)
    trained[:, 1:] = is_inside[:, :-1] & ~is_role[:, 1:]
    return trained
