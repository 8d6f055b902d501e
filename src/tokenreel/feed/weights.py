"""Which tokens of which pieces weigh how much, from the sidecars of a split."""

from __future__ import annotations

import numpy as np

from tokenreel.errors import DamageError
from tokenreel.feed.gather import Spans
from tokenreel.rows.pieces import Pieces, ragged_index
from tokenreel.store.shard import Shard
from tokenreel.store.split import Split


def spans_of(split: Split, pieces: Pieces) -> Spans | None:
    """Return the weighing spans of pieces; None where every token weighs 1."""
    first = split.shards[0]
    if first.weight_file is not None or first.turn_file is not None:
        for shard in np.unique(pieces.shard).tolist():
            split.shards[shard].check_sidecars()
    if first.weight_file is not None:
        return _from_weights(split, pieces)
    if first.turn_file is not None:
        return _from_turns(split, pieces)
    return None


def _from_turns(split: Split, pieces: Pieces) -> Spans:
    """Take the trained part of each turn that overlaps a piece."""
    counts = np.zeros(len(pieces.shard), np.int64)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
    for shard in np.unique(pieces.shard):
        turns = split.shards[shard].turns
        mine = np.flatnonzero(pieces.shard == shard)
        if turns is None or not len(turns):
            continue
        begin, length = pieces.start[mine], pieces.length[mine]
        starts = turns["start"]
        # Turns low to high may overlap a piece: from the last that begins at or before it, up to
        # those that begin within it.
        low = np.searchsorted(starts, begin.astype(np.uint64), side="right") - 1
        high = np.searchsorted(starts, (begin + length).astype(np.uint64), side="left")
        low = np.maximum(low, 0)
        number = np.maximum(high - low, 0)
        # A span for each of them, counted from the first token of the piece it belongs to.
        chosen = turns[ragged_index(low, number)]
        owner = np.repeat(np.arange(len(mine)), number)
        base = begin[owner]
        first = chosen["start"].astype(np.int64) + chosen["head"] - base
        stop = chosen["start"].astype(np.int64) + chosen["length"] - chosen["tail"] - base
        counts[mine] = number
        parts.append((mine[owner], np.maximum(first, 0), np.maximum(stop, 0), chosen["weight"]))
    return _assembled(counts, parts)


def _from_weights(split: Split, pieces: Pieces) -> Spans:
    """Take runs of equal weights within each piece."""
    counts = np.zeros(len(pieces.shard), np.int64)
    parts = []
    for p, (shard, start, length) in enumerate(
        zip(pieces.shard.tolist(), pieces.start.tolist(), pieces.length.tolist(), strict=True)
    ):
        weights = split.shards[shard].read_weights(start, start + length)
        if weights is None or not length:
            continue
        refuse_bad_weights(weights, split.shards[shard], start)
        borders = np.flatnonzero(np.diff(weights)) + 1
        first = np.concatenate(([0], borders))
        stop = np.concatenate((borders, [length]))
        counts[p] = len(first)
        parts.append((np.full(len(first), p), first, stop, weights[first].astype(np.float32)))
    return _assembled(counts, parts)


def refuse_bad_weights(weights: np.ndarray, shard: Shard, start: int) -> None:
    """Raise DamageError for a negative, NaN or infinite weight, as another layout may hold."""
    bad = ~((weights >= 0) & (weights < np.inf))
    if bad.any() and shard.weight_file is not None:
        at = int(np.argmax(bad))
        raise DamageError(
            f"the weight of token {start + at:,} is negative or not a number",
            where=shard.weight_file.path,
            expected=">= 0",
            actual=float(weights[at]),
            remedy="restore the file or build the store again",
        )


def _assembled(
    counts: np.ndarray, parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
) -> Spans:
    """Return spans in order of their pieces; a part has piece, start, stop, weight of some."""
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    if not parts:
        nothing = np.empty(0, np.int64)
        return Spans(offsets=offsets, start=nothing, stop=nothing, weight=np.empty(0, np.float32))
    owner, start, stop, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(owner, kind="stable")
    return Spans(
        offsets=offsets,
        start=np.ascontiguousarray(start[order], np.int64),
        stop=np.ascontiguousarray(stop[order], np.int64),
        weight=np.ascontiguousarray(weight[order], np.float32),
    )
