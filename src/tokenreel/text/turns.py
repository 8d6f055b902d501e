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
