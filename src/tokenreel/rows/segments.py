"""Documents as segments that fit into a row, and what of each is trained.

    split        a document that is too long becomes several segments of T + 1 tokens; each
                 begins with the last token of the one before, so that no transition is lost
    keep_first   its first T + 1 tokens
    keep_last    its last T + 1 tokens
    whole_turns  of a chat, the system turn and the last whole turns that fit, as one segment
                 of two token ranges (the rule: text/chats/truncate.py); a chat whose system turn
                 does not fit beside its last answer is a segment of no tokens, which goes into
                 no row and is counted (`unfit_documents`)

The first token of a segment is nobody's target; of the others those count as trained
that have a weight above 0: the stored weights, else those of the turns, else all. All is
array work, except some 50 µs for each chat that whole_turns cuts. Stored weights are
read once, 4 M tokens at a time; tokens never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import ragged_index
from tokenreel.store.split import Split

WEIGHTS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Documents of at least two tokens; all int64 [n]: number, position of first token, length."""

    document: np.ndarray
    begin: np.ndarray
    length: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Parts of documents, each to stand in one row; all int64 [n], in order of documents.

    A segment is the `length` tokens of the split from position `start` on, behind the
    `prefix_length` tokens from `prefix_start` on; both lie in its document.
    """

    document: np.ndarray
    start: np.ndarray
    length: np.ndarray
    prefix_start: np.ndarray
    prefix_length: np.ndarray

    @property
    def num_tokens(self) -> np.ndarray:
        """How many tokens each segment has, int64 [n]."""
        return self.length + self.prefix_length

    def take(self, chosen: np.ndarray) -> Segments:
        """Return the segments that an index or a mask chooses."""
        return Segments(**{item.name: getattr(self, item.name)[chosen] for item in fields(self)})


def document_bounds(split: Split, first: int, stop: int) -> tuple[Bounds, np.ndarray]:
    """Return those of documents first to stop with two tokens or more, and the lengths of all."""
    begins, ends = split.document_bounds(first, stop)
    lengths = ends - begins
    kept = np.flatnonzero(lengths >= 2)
    return Bounds(document=kept + first, begin=begins[kept], length=lengths[kept]), lengths


def cut(split: Split, bounds: Bounds, *, capacity: int, truncation: str) -> Segments:
    """Return the segments of documents by a truncation."""
    return TRUNCATIONS[truncation](split, bounds, capacity)


def _split(split: Split, bounds: Bounds, capacity: int) -> Segments:
    stride = capacity - 1
    counts = -(-(bounds.length - 1) // stride)
    start = ragged_index(np.zeros(len(counts), np.int64), counts) * stride
    length = np.minimum(np.repeat(bounds.length, counts) - start, capacity)
    document = np.repeat(bounds.document, counts)
    return _plain(document, np.repeat(bounds.begin, counts) + start, length)


def _keep_first(split: Split, bounds: Bounds, capacity: int) -> Segments:
    return _plain(bounds.document, bounds.begin.copy(), np.minimum(bounds.length, capacity))


def _keep_last(split: Split, bounds: Bounds, capacity: int) -> Segments:
    length = np.minimum(bounds.length, capacity)
    return _plain(bounds.document, bounds.begin + bounds.length - length, length)


def _whole_turns(split: Split, bounds: Bounds, capacity: int) -> Segments:
    from tokenreel.text.chats.truncate import whole_turns  # only planning needs the text room

    segments = _keep_first(split, bounds, capacity)
    too_long = np.flatnonzero(bounds.length > capacity)
    if not len(too_long):
        return segments
    begins, ends = bounds.begin[too_long], (bounds.begin + bounds.length)[too_long]
    turns = split.turns_between(int(begins[0]), int(ends[-1]))
    starts = turns["start"].astype(np.int64)
    # Turns low to high are those of each document that is too long.
    edges = np.searchsorted(starts, np.stack((begins, ends), axis=1)).tolist()
    for at, begin, end, (low, high) in zip(
        too_long.tolist(), begins.tolist(), ends.tolist(), edges, strict=True
    ):
        mine = turns[low:high].copy()
        mine["start"] -= np.uint64(begin)
        ranges = whole_turns(mine, end - begin, max_tokens=capacity).pieces
        if not ranges:
            segments.length[at] = 0
            continue
        _keep_ranges(segments, at, [(begin + start, begin + stop) for start, stop in ranges])
    return segments


def _keep_ranges(segments: Segments, at: int, ranges: list[tuple[int, int]]) -> None:
    """Make segment `at` of one or two token ranges; two that touch are one."""
    (start, stop), (last_start, last_stop) = ranges[0], ranges[-1]
    if len(ranges) == 1 or stop == last_start:
        segments.start[at], segments.length[at] = start, last_stop - start
        return
    segments.prefix_start[at], segments.prefix_length[at] = start, stop - start
    segments.start[at], segments.length[at] = last_start, last_stop - last_start


def _plain(document: np.ndarray, start: np.ndarray, length: np.ndarray) -> Segments:
    return Segments(
        document=document,
        start=start,
        length=length,
        prefix_start=start.copy(),
        prefix_length=np.zeros_like(start),
    )


TRUNCATIONS: Mapping[str, Callable[[Split, Bounds, int], Segments]] = {
    "split": _split,
    "keep_first": _keep_first,
    "keep_last": _keep_last,
    "whole_turns": _whole_turns,
}


def row_version(version: int, truncation: str) -> int:
    """Return the version of rows with a truncation, from the version of their kind.

    That of whole_turns is one further on: it once cut into system turns.
    """
    return version + (truncation == "whole_turns")


def count_unfit(segments: Segments) -> int:
    """Return how many chats are dropped because a row cannot hold their system turn whole."""
    return int(np.count_nonzero(segments.num_tokens == 0))


def choose_truncation(split: Split, truncation: str | None) -> str:
    """Return the truncation asked for, or the one that suits the split."""
    if truncation is None:
        return "whole_turns" if split.has_turns else "split"
    if truncation not in TRUNCATIONS:
        raise ConfigError(
            "unknown truncation", expected=" or ".join(TRUNCATIONS), actual=repr(truncation)
        )
    if truncation == "whole_turns" and not split.has_turns:
        raise ConfigError(
            "whole_turns needs a turn table, and this split has none",
            where=split.name,
            remedy="choose another truncation, or build the store from chats",
        )
    return truncation


def count_targets(split: Split, segments: Segments, bounds: Bounds) -> np.ndarray:
    """Return how many tokens of each segment are trained targets, int64 [n]."""
    if not len(segments.document) or not (split.has_weights or split.has_turns):
        return segments.num_tokens - 1
    # A segment is three ranges of positions: its prefix and its rest, whose trained tokens count,
    # and its first token, which is nobody's target and is taken off again.
    prefix, rest = segments.prefix_start, segments.start
    first = np.where(segments.prefix_length > 0, prefix, rest)
    ends = (prefix, prefix + segments.prefix_length, rest, rest + segments.length, first, first + 1)
    points = np.stack(ends, axis=1)  # [n, 6]; nearly sorted, document by document
    # The trained tokens of a range are those before its end less those before its beginning.
    before = _count_trained(split, points.ravel(), start=int(bounds.begin[0])).reshape(-1, 6).T
    return (before[1] - before[0]) + (before[3] - before[2]) - (before[5] - before[4])


def _count_trained(split: Split, positions: np.ndarray, *, start: int) -> np.ndarray:
    """Return how many trained tokens lie before each position, int64; counted from `start` on.

    `start` must be the first token of a document, so that no turn is cut there.
    """
    stop = int(positions.max())
    if split.has_weights:
        return _count_weights(split, positions, start=start, stop=stop)
    # The trained span of each turn, first to end: the turn without its head and its tail. Spans
    # ascend and do not overlap.
    turns = split.turns_between(start, stop)
    first = turns["start"].astype(np.int64) + turns["head"]
    end = turns["start"].astype(np.int64) + turns["length"] - turns["tail"]
    trained = (turns["weight"] > 0) & (end > first)
    first, end = first[trained], end[trained]
    # totals[k]: the tokens of the first k spans; num_begun: the spans that begin at or before a
    # position, of which only the last can reach beyond it.
    totals = np.concatenate((np.zeros(1, np.int64), np.cumsum(end - first)))
    num_begun = np.searchsorted(first, positions, side="right")
    # The end of that last span; where none has begun, a position that is not beyond any.
    last_end = np.concatenate((np.full(1, start), end))[num_begun]
    return totals[num_begun] - np.maximum(last_end - positions, 0)


def _count_weights(split: Split, positions: np.ndarray, *, start: int, stop: int) -> np.ndarray:
    """Do the same by stored weights, of which only a block is in memory at a time."""
    order = np.argsort(positions, kind="stable")
    points = positions[order]
    counts = np.empty(len(points), np.int64)
    total = 0  # trained tokens of the blocks before
    for low in range(start, stop + 1, WEIGHTS_AT_ONCE):
        high = min(low + WEIGHTS_AT_ONCE, stop)
        # running[i]: the trained ones among the first i tokens of this block.
        running = np.zeros(high - low + 1, np.int64)
        np.cumsum(split.weights_between(low, high) > 0, out=running[1:])
        # The positions within this block, by their numbers in `positions`.
        here = order[slice(*np.searchsorted(points, (low, low + WEIGHTS_AT_ONCE)))]
        counts[here] = total + running[positions[here] - low]
        total += int(running[-1])
    return counts
