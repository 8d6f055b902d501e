"""Small stores of awkward documents, and rows read back token by token."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from tokenreel import StoreWriter, open_store
from tokenreel.rows.packed import Packed
from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split
from tokenreel.store.store import Store
from tokenreel.text.chats.truncate import whole_turns
from tokenreel.text.turns import ROLE_CODES, TURN

# A segment as it stands in a row: its document and the token ranges of it that it shows.
Segment = tuple[int, tuple[tuple[int, int], ...]]


class Place:
    """Fresh folders, in memory where that is possible, so that examples do not wait for a disk."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        base = shared if shared.is_dir() else None
        self.root = Path(tempfile.mkdtemp(prefix="tokenreel-", dir=base))
        self._count = 0

    def __call__(self) -> Path:
        self._count += 1
        return self.root / str(self._count)

    def remove(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self.root, ignore_errors=True)


def write_store(
    path: Path,
    lengths: Sequence[int],
    *,
    weights: Sequence[Sequence[float]] | None = None,
    turns: Sequence[np.ndarray] | None = None,
    **options: Any,
) -> Store:
    """Write documents of these lengths; all their tokens differ, up to 60,000."""
    settings: dict[str, Any] = {"vocab_size": 60_000, "shard_bytes": 24, "block_bytes": 1024}
    if weights is not None:
        settings["weights"] = "float32"
    settings |= {"turns": turns is not None, **options}
    position = 0
    with StoreWriter(path, **settings) as writer:
        for number, length in enumerate(lengths):
            writer.add(
                np.arange(position, position + length),
                weights=None if weights is None else weights[number],
                turns=None if turns is None else turns[number],
            )
            position += length
    return open_store(path)


def make_turns(spec: Sequence[tuple[str, int, int, int, float]]) -> np.ndarray:
    """Return the turn table of (role, length, head, tail, weight) one after the other."""
    turns = np.zeros(len(spec), TURN)
    start = 0
    for turn, (role, length, head, tail, weight) in zip(turns, spec, strict=True):
        turn["start"], turn["length"] = start, length
        turn["head"], turn["tail"] = min(head, length), min(tail, length - min(head, length))
        turn["weight"], turn["role"] = weight, ROLE_CODES[role]
        start += length
    return turns


def read_row(split: Split, pieces: Pieces, row: int) -> list[tuple[Segment, list[int]]]:
    """Return the segments of a row with their tokens, read from the shards."""
    found: list[tuple[int, list[tuple[int, int]], list[int]]] = []
    for at in range(int(pieces.row_offsets[row]), int(pieces.row_offsets[row + 1])):
        shard, start, length = (
            int(getattr(pieces, name)[at]) for name in ("shard", "start", "length")
        )
        document = int(pieces.document[at])
        begin = int(split.token_starts[shard]) + start - split.document_span(document)[0]
        if pieces.first[at]:
            found.append((document, [], []))
        assert found[-1][0] == document
        ranges = found[-1][1]
        if ranges and ranges[-1][1] == begin:
            ranges[-1] = (ranges[-1][0], begin + length)
        else:
            ranges.append((begin, begin + length))
        found[-1][2].extend(split.shards[shard].read(start, start + length).tolist())
    return [((document, tuple(ranges)), tokens) for document, ranges, tokens in found]


def read_rows(plan: Packed) -> list[list[tuple[Segment, list[int]]]]:
    """Return every row of a plan."""
    pieces = plan.pieces(np.arange(plan.num_rows))
    return [read_row(plan.split, pieces, row) for row in range(plan.num_rows)]


def expected_plan(plan: Packed) -> tuple[Counter[Segment], dict[str, int]]:
    """Return the segments a plan must have and what its ledger must say, by documents alone."""
    capacity, truncation = plan.seq_len + 1, str(plan.settings["truncation"])
    min_trained = cast(int, plan.settings["min_trained"])
    segments: list[Segment] = []
    ledger: Counter[str] = Counter(tokens=plan.split.num_tokens)
    for document in plan.split.documents():
        ledger["documents"] += 1
        if len(document) < 2:
            ledger["short_documents"] += 1
            ledger["dropped"] += len(document)
            continue
        shown = set[int]()
        is_unfit = False
        for ranges in _cuts(document.turns, len(document), capacity, truncation):
            is_unfit = not ranges
            if is_unfit:
                continue
            numbers = [token for start, stop in ranges for token in range(start, stop)]
            trained = sum(bool(document.loss_weights[number] > 0) for number in numbers[1:])
            if trained < min_trained or len(numbers) < 2:
                ledger["untrained_segments"] += 1
                continue
            segments.append((document.number, ranges))
            ledger["trained"] += trained
            ledger["masked"] += len(numbers) - trained
            ledger["overlap"] += len(shown & set(numbers))
            shown |= set(numbers)
        ledger["placed"] += len(shown)
        ledger["unfit_documents"] += is_unfit
        ledger["untrained_documents"] += not shown and not is_unfit
        was_cut = bool(shown) and len(document) > capacity
        ledger["cut_documents"] += was_cut
        missing = "truncated" if was_cut and truncation != "split" else "dropped"
        ledger[missing] += len(document) - len(shown)
    ledger["segments"] = len(segments)
    return Counter(segments), dict(ledger)


def _cuts(
    turns: np.ndarray | None, length: int, capacity: int, truncation: str
) -> list[tuple[tuple[int, int], ...]]:
    if length <= capacity:
        return [((0, length),)]
    if truncation == "keep_first":
        return [((0, capacity),)]
    if truncation == "keep_last":
        return [((length - capacity, length),)]
    if truncation == "whole_turns":
        assert turns is not None
        ranges = whole_turns(turns, length, max_tokens=capacity).pieces
        if len(ranges) == 2 and ranges[0][1] == ranges[1][0]:
            ranges = ((ranges[0][0], ranges[1][1]),)
        return [ranges]
    starts = range(0, length - 1, capacity - 1)
    return [((start, min(start + capacity, length)),) for start in starts]
