"""Chats as ids alone: the assistant mask of contracts 001 and 002, the truncation of 001.

    ids    SYS 50 EOT  USR 51 EOT  ASST 52 53 EOT  EOT      the last EOT is padding
    mask    ·  ·   ·    ·  ·   ·    ·    ×  ×  ×    ·

A scan believes every id it sees; where there are turns or weights, the core carries them
(feed/gather.py) instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.dropin.caches.cache_parts import SpecialIds
from tokenreel.dropin.document_heads import DocumentHeads
from tokenreel.feed.gather import IGNORED, GatheredIds, gather
from tokenreel.feed.tokens import tokens_of
from tokenreel.text.chats.truncate import ASSISTANT, USER, Cut, cut_to, keep_last, kept_ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """Rows [n, T] int64: inputs, the tokens that follow them, and those that are trained.

    Inputs and targets are padded alike; labels are -100 where nothing is trained.
    """

    inputs: np.ndarray
    targets: np.ndarray
    labels: np.ndarray


def gather_scanned(heads: DocumentHeads, rows: np.ndarray, *, ids: SpecialIds) -> Scanned:
    """Return the rows with these numbers, int64 [n], in memory of their own.

    Rows are padded with the end-of-turn id, which is known by its position and never trained.
    """
    shards, buffer, pieces = tokens_of(heads.split, heads.pieces(rows))
    both = np.empty((2, len(rows), heads.seq_len), np.int64)
    out = GatheredIds(input_ids=both[0], labels=both[1])
    gather(shards, pieces, out, buffer=buffer, spans=None, pad_id=ids.eot)
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


def oldest_pairs(turns: np.ndarray, num_tokens: int, *, max_tokens: int) -> Cut:
    """Drop the oldest question-and-answer pairs until the rest fits; then cut hard from the left.

    Behind the leading system turns, turns are dropped from the left in steps that end before a
    user turn or behind an assistant turn; the last assistant turn is never dropped. If the system
    turn and the last pair are still too long, the last tokens of them are kept, moved left as far
    as needed to hold the end of the last assistant turn. `truncate.whole_turns` is the better
    policy for new work: it keeps the system turn wherever it can, and a tool result with its call.
    """
    if num_tokens <= max_tokens or not len(turns):
        return keep_last(turns, num_tokens, max_tokens=max_tokens)
    roles = turns["role"]
    first, last = kept_ends(roles)
    starts = turns["start"].astype(np.int64)
    prefix = int(starts[first])
    numbers = np.arange(first, last + 1)
    steps = numbers[
        (numbers == first) | (roles[numbers] == USER) | (roles[numbers - 1] == ASSISTANT)
    ]
    kept = prefix + num_tokens - starts[steps]
    fitting = np.flatnonzero(kept <= max_tokens)
    start = int(starts[steps[fitting[0] if len(fitting) else -1]])
    stop = int(turns["start"][last] + turns["length"][last])
    if num_tokens - stop < max_tokens:  # the last tokens hold the answer's end
        stop = num_tokens
    overflow = max(0, prefix + stop - start - max_tokens)
    return cut_to(
        turns,
        (min(overflow, prefix), prefix),
        (start + max(0, overflow - prefix), stop),
    )
