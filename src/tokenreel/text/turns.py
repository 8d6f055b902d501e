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

A document may be a group: several answers to one prompt, end to end, each with its prompt. Then
`answer` numbers them, and the first turn of an answer begins with the answer's first token, so
that the table says where one answer ends and the next begins:

    answer     0      0 0           1      1 1
               ├──────┼─────────────┼──────┼──────────┤
               │ user │ assistant   │ user │ assistant│
    label      1      1 1           2      2 2             (PREFERRED, REJECTED)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

ROLES = ("system", "user", "assistant", "tool")
ROLE_CODES = {name: code for code, name in enumerate(ROLES)}

TURN = np.dtype(
    {
        "names": ["start", "length", "head", "tail", "weight", "role", "answer", "label"],
        "formats": ["<u8", "<u4", "<u2", "<u2", "<f4", "u1", "u1", "u1"],
        "offsets": [0, 8, 12, 14, 16, 20, 21, 22],
        "itemsize": 24,
    }
)
MAX_ANSWERS = 256  # of a group: their numbers are bytes
NO_LABEL, PREFERRED, REJECTED = range(3)
LABELS = ("", "preferred", "rejected")


def roles_of_answers(labels: Sequence[int]) -> list[str]:
    """Return what each answer of a group is: its label in words or, without one, its rank.

    >>> roles_of_answers([PREFERRED, REJECTED]), roles_of_answers([NO_LABEL, NO_LABEL])
    (['preferred', 'rejected'], ['rank 1 of 2', 'rank 2 of 2'])
    """
    count = len(labels)
    return [LABELS[label] or f"rank {rank} of {count}" for rank, label in enumerate(labels, 1)]


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


def answer_begins(turns: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Return the numbers of the turns that begin an answer, int64.

    `owner` is the document of each turn, [turns].

    >>> turns = np.zeros(4, TURN)
    >>> turns["answer"] = [0, 0, 1, 0]
    >>> answer_begins(turns, np.array([0, 0, 0, 1])).tolist()
    [0, 2, 3]
    """
    begins = np.ones(len(turns), bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (turns["answer"][1:] != turns["answer"][:-1])
    return np.flatnonzero(begins)


def find_bad_answer(turns: np.ndarray, owner: np.ndarray, offsets: np.ndarray) -> int | None:
    """Return the number of the first turn that fits into no group, or None.

    `owner` is the document of each turn, `offsets` counts its start from that document's first
    token, both int64 [turns]. The answers of a document are numbered 0, 1, 2, …; the first begins
    with the document; none is empty; all turns of an answer have its label.
    """
    begins = answer_begins(turns, owner)
    first = np.ones(len(begins), bool)  # answers that are the first of their document
    first[1:] = owner[begins[1:]] != owner[begins[:-1]]
    number, start = turns["answer"][begins].astype(np.int64), offsets[begins]
    bad = first & ((number != 0) | (start != 0))
    bad[1:] |= ~first[1:] & ((np.diff(number) != 1) | (np.diff(start) <= 0))
    labels = turns["label"]
    wrong = labels > REJECTED
    wrong[begins[bad]] = True
    # The label of each turn against that of the turn which begins its answer.
    answers = np.diff(np.append(begins, len(turns)))
    wrong |= labels != np.repeat(labels[begins], answers)
    return int(np.argmax(wrong)) if wrong.any() else None


def told_turns(turns: np.ndarray) -> list[str]:
    """Return each turn in words: who spoke, and how many tokens; in a group, in which answer.

    >>> turns = np.zeros(1, TURN)
    >>> turns["length"], turns["head"], turns["weight"], turns["role"] = 4, 1, 1.0, 2
    >>> told_turns(turns)
    ['assistant 4 (3 trained)']
    """
    told = []
    is_group = bool(turns["answer"].any() or turns["label"].any())
    for turn, trained in zip(turns, trained_lengths(turns).tolist(), strict=True):
        code = int(turn["role"])
        role = ROLES[code] if code < len(ROLES) else f"role {code}"
        label = LABELS[int(turn["label"])] if turn["label"] < len(LABELS) else ""
        answer = f"answer {int(turn['answer']) + 1}{f', {label}' if label else ''}: " * is_group
        spoken = f" ({trained:,} trained)" if trained else ""
        told.append(f"{answer}{role} {turn['length']:,}{spoken}")
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
