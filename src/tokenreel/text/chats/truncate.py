"""Chats that are too long, cut by their turn table, without rendering them again.

    whole_turns   keep the system turn and as many of the last whole turns as fit
    keep_last     keep the last tokens, whatever the turns

`whole_turns` drops oldest turns until the rest fits. What is left begins with a user
turn if that fits, otherwise with any turn that leaves no tool result without its call.
The system turn (and what the template puts before it) and the last assistant turn
always stay. If what follows them is too long, it is kept from the left as far as there is
room. If a system turn and the last assistant turn are too long by themselves, nothing is kept:
no system turn is ever cut into, since a model would be shown half of its instructions. Without
a system turn, the tokens before the last assistant's end-of-turn are kept from the right. A
chat without an assistant turn has its last turn in that place. A longer limit keeps all that a
shorter one kept.

A hard cut never adds a token: a turn that lost its end has none, and what survives of a
trained span stays trained. Costs a few microseconds per chat that is too long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.text.turns import ROLE_CODES, clip_turns

SYSTEM, USER = ROLE_CODES["system"], ROLE_CODES["user"]
ASSISTANT, TOOL = ROLE_CODES["assistant"], ROLE_CODES["tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What is kept of one chat: token ranges [start, stop), ascending, and the turns in them.

    No range at all where the chat is dropped.
    """

    pieces: tuple[tuple[int, int], ...]
    turns: np.ndarray

    def take(self, tokens: np.ndarray) -> np.ndarray:
        """Return the kept tokens (ids, or anything else there is one of per token)."""
        return np.concatenate([tokens[:0], *(tokens[start:stop] for start, stop in self.pieces)])


def whole_turns(turns: np.ndarray, num_tokens: int, *, max_tokens: int) -> Cut:
    """Keep the system turn and the last whole turns that fit; cut hard only where none do.

    A chat whose system turn does not fit beside its last answer is dropped: no range is kept.
    """
    if num_tokens <= max_tokens or not len(turns):
        return cut_to(turns, (0, min(num_tokens, max_tokens)))
    first, last = kept_ends(turns["role"])
    starts = np.append(turns["start"].astype(np.int64), num_tokens)
    prefix = int(starts[first])
    allowed = np.arange(first, last + 1)[~_parts_call_from_result(turns["role"])[first : last + 1]]
    for candidates in (allowed[turns["role"][allowed] == USER], allowed):
        fitting = candidates[prefix + num_tokens - starts[candidates] <= max_tokens]
        if len(fitting):
            return cut_to(turns, (0, prefix), (int(starts[fitting[0]]), num_tokens))
    return _hard_cut(turns, num_tokens, max_tokens=max_tokens, prefix=prefix, last=last)


def keep_last(turns: np.ndarray, num_tokens: int, *, max_tokens: int) -> Cut:
    """Keep the last tokens."""
    return cut_to(turns, (max(0, num_tokens - max_tokens), num_tokens))


def kept_ends(roles: np.ndarray) -> tuple[int, int]:
    """Return the first turn that is not a leading system turn, and the turn that must stay."""
    others = np.flatnonzero(roles != SYSTEM)
    first = int(others[0]) if len(others) else len(roles) - 1
    answers = np.flatnonzero(roles == ASSISTANT)
    return first, int(answers[-1]) if len(answers) else len(roles) - 1


def _parts_call_from_result(roles: np.ndarray) -> np.ndarray:
    """Return for each turn whether starting there leaves a tool result without its call.

    A result belongs to the nearest run of assistant turns before it.
    """
    numbers = np.arange(len(roles))
    speaks = roles == ASSISTANT
    run_starts = speaks & ~np.concatenate(([False], speaks[:-1]))
    last_run = np.maximum.accumulate(np.where(run_starts, numbers, -1))
    results = np.flatnonzero(roles == TOOL)
    callers = np.where(last_run[results] < 0, results - 1, last_run[results])
    steps = np.zeros(len(roles) + 1, np.int64)
    np.add.at(steps, callers + 1, 1)
    np.add.at(steps, results + 1, -1)
    return np.cumsum(steps[:-1]) > 0


def _hard_cut(
    turns: np.ndarray, num_tokens: int, *, max_tokens: int, prefix: int, last: int
) -> Cut:
    start = int(turns["start"][last])
    stop = start + int(turns["length"][last]) - int(turns["tail"][last])
    overflow = prefix + stop - start - max_tokens
    is_system = turns["role"][[0, last]] == SYSTEM
    if is_system[1] or (is_system[0] and overflow > 0):
        return Cut(pieces=(), turns=turns[:0])
    if overflow <= 0:
        room = min(num_tokens, stop - overflow)
        return cut_to(turns, (0, prefix), (start, _before_cut_system(turns, room, last=last)))
    return cut_to(turns, (min(overflow, prefix), prefix), (start + max(0, overflow - prefix), stop))


def _before_cut_system(turns: np.ndarray, stop: int, *, last: int) -> int:
    """Return `stop`, or the beginning of a system turn behind the last answer that it cuts."""
    starts = turns["start"].astype(np.int64)
    is_cut = (starts < stop) & (stop < starts + turns["length"]) & (turns["role"] == SYSTEM)
    is_cut[: last + 1] = False
    return int(starts[np.argmax(is_cut)]) if is_cut.any() else stop


def cut_to(turns: np.ndarray, *pieces: tuple[int, int]) -> Cut:
    """Return the cut that keeps these token ranges, given in ascending order."""
    parts, kept = [], 0
    for start, stop in pieces:
        part = clip_turns(turns, start, stop=stop)
        part["start"] += np.uint64(kept)
        parts.append(part)
        kept += stop - start
    return Cut(
        pieces=tuple(piece for piece in pieces if piece[0] < piece[1]) or pieces[:1],
        turns=np.concatenate(parts),
    )
