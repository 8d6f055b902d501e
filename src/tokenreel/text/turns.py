"""The turn table: who spoke which tokens, and what they weigh in the loss.

One record of 24 bytes per turn, in order, without overlap. It is what the chat
renderer returns beside the ids, what the store keeps in `.turns`, and the only
place a loss mask is made from.

     start                                    start + length
       │◄─ head ─►│◄──────── trained ────────►│◄─ tail ─►│
       ├──────────┼───────────────────────────┼──────────┤
       │ role ids │ content … end-of-turn     │ newline  │
       └──────────┴───────────────────────────┴──────────┘
         weight 0          `weight`             weight 0
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

ROLES = ("system", "user", "assistant", "tool")
ROLE_CODES = {name: code for code, name in enumerate(ROLES)}

TURN = np.dtype(
    {
        "names": ["start", "length", "head", "tail", "weight", "role"],
        "formats": ["<u8", "<u4", "<u2", "<u2", "<f4", "u1"],
        "offsets": [0, 8, 12, 14, 16, 20],
        "itemsize": 24,
    }
)


def token_weights(turns: np.ndarray, num_tokens: int) -> np.ndarray:
    """Return the loss weight of each token, float32 [num_tokens]; outside trained spans it is 0.

    `turns` is a TURN array whose starts count from the first of the `num_tokens`.

    >>> turns = np.zeros(1, TURN)
    >>> turns["length"], turns["head"], turns["weight"] = 4, 1, 1.0
    >>> token_weights(turns, 5).tolist()
    [0.0, 1.0, 1.0, 1.0, 0.0]
    """
    starts = turns["start"].astype(np.int64)
    first = starts + turns["head"]
    stop = starts + turns["length"] - turns["tail"]
    # Spans do not overlap, so each is a step up at its first token and down at its end; the
    # steps are summed as indices into the turns, which keeps the weights exact.
    steps = np.zeros(num_tokens + 1, np.int64)
    spans = np.flatnonzero(stop > first)
    np.add.at(steps, first[spans], spans + 1)
    np.add.at(steps, stop[spans], -(spans + 1))
    owner = np.cumsum(steps[:-1])
    table = np.concatenate(([np.float32(0)], turns["weight"]))
    return table[owner]


def trained_lengths(turns: np.ndarray) -> np.ndarray:
    """Return how many tokens of each turn have a weight above 0, int64 [turns].

    >>> turns = np.zeros(2, TURN)
    >>> turns["length"], turns["head"], turns["weight"] = 4, 1, [0.5, 0]
    >>> trained_lengths(turns).tolist()
    [3, 0]
    """
    inner = turns["length"].astype(np.int64) - turns["head"] - turns["tail"]
    return np.where(turns["weight"] > 0, np.maximum(inner, 0), 0)


def told_turns(turns: np.ndarray) -> list[str]:
    """Return each turn in words: who spoke, and how many tokens.

    >>> turns = np.zeros(1, TURN)
    >>> turns["length"], turns["head"], turns["weight"], turns["role"] = 4, 1, 1.0, 2
    >>> told_turns(turns)
    ['assistant 4 (3 trained)']
    """
    told = []
    for turn, trained in zip(turns, trained_lengths(turns).tolist(), strict=True):
        code = int(turn["role"])
        role = ROLES[code] if code < len(ROLES) else f"role {code}"
        told.append(f"{role} {turn['length']:,}{f' ({trained:,} trained)' if trained else ''}")
    return told


def clip_turns(turns: np.ndarray, start: int, *, stop: int) -> np.ndarray:
    """Return the turns inside tokens [start, stop), cut at its ends, starts counted from `start`.

    A cut turn keeps its weight on what survives of its trained span; one of which
    nothing survives is left out.

    >>> turns = np.zeros(1, TURN)
    >>> turns["length"], turns["head"], turns["weight"] = 6, 2, 1.0
    >>> token_weights(clip_turns(turns, 1, stop=5), 4).tolist()
    [0.0, 1.0, 1.0, 1.0]
    """
    first = turns["start"].astype(np.int64)
    last = first + turns["length"]
    left, right = np.maximum(first, start), np.minimum(last, stop)
    kept = np.flatnonzero(right > left)
    left, right = left[kept], right[kept]
    trained_start = np.clip(first[kept] + turns["head"][kept], left, right)
    trained_stop = np.clip(last[kept] - turns["tail"][kept], trained_start, right)
    clipped = turns[kept]
    clipped["start"] = left - start
    clipped["length"] = right - left
    clipped["head"] = trained_start - left
    clipped["tail"] = right - trained_stop
    return clipped


def scan_turns(ids: np.ndarray, role_ids: Mapping[int, int], *, end_id: int) -> np.ndarray:
    """Return the turns of ids by their role ids (id to role code) and end-of-turn id.

    A turn runs from a role id through the first end-of-turn id behind it, or up to the
    next role id where that comes first; tokens outside are in no turn. Weights are 1
    for the assistant and 0 for the others. Only for ids whose turn table is lost: it
    believes every role id it sees.

    >>> turns = scan_turns(np.array([1, 7, 9, 2, 8, 9]), {1: 1, 2: 2}, end_id=9)
    >>> turns["start"].tolist(), turns["length"].tolist(), turns["role"].tolist()
    ([0, 3], [3, 3], [1, 2])
    """
    known = np.fromiter(role_ids, np.int64, len(role_ids))
    starts = np.flatnonzero(np.isin(ids, known))
    stops = np.append(starts[1:], len(ids))[: len(starts)]
    ends = np.append(np.flatnonzero(ids == end_id), len(ids))
    first_end = ends[np.searchsorted(ends, starts)] + 1
    turns = np.zeros(len(starts), TURN)
    turns["start"] = starts
    turns["length"] = np.minimum(first_end, stops) - starts
    turns["head"] = 1
    turns["role"] = [role_ids[int(token)] for token in ids[starts]]
    turns["weight"] = turns["role"] == ROLE_CODES["assistant"]
    return turns
