"""The truncation of contract 001: oldest question-and-answer pairs go first.

Behind the leading system turns, turns are dropped from the left in steps that end
before a user turn or behind an assistant turn, until the rest fits; the last
assistant turn is never dropped. If the system turn and the last pair are still too
long, the last tokens of them are kept, moved left as far as needed to hold the end
of the last assistant turn. `truncate.whole_turns` is the better policy for new work:
it keeps the system turn wherever it can, and a tool result with its call.
"""

from __future__ import annotations

import numpy as np

from tokenreel.text.chats.truncate import ASSISTANT, USER, Cut, cut_to, keep_last, kept_ends


def oldest_pairs(turns: np.ndarray, num_tokens: int, *, max_tokens: int) -> Cut:
    """Drop the oldest pairs until the rest fits; then cut hard from the left."""
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
