"""What a page is told of a whole step: each row in a line, from its plan alone.

No batch is made and no token is read: the pieces of the rows, and what the turns of their
documents say, are counted together. A step of 512 rows of 32,768 tokens takes some ten
milliseconds. Only where every token has a stored weight the rows are made, some at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.feed.denominators import count_rows, count_trained
from tokenreel.feed.feed import Feed
from tokenreel.feed.parts import part_of
from tokenreel.feed.trace import check_within, pieces_by_document
from tokenreel.order.order import Located
from tokenreel.view.clipped import told_place

SLOTS_AT_ONCE = 1 << 19  # of rows that are made together: some 15 MB, which the caches half hold


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Of each row of a step, int64: used slots, segments, trained labels, its document or -1."""

    used: np.ndarray
    segments: np.ndarray
    trained: np.ndarray
    document: np.ndarray


def step_facts(feed: Feed, step: int, *, world_size: int = 1) -> dict[str, Any]:
    """Return each row of a step: its source, rank, segments, fill, and its document if it is one.

    Rows that only fill up the last step of an evaluation stand behind the others, and have no
    source.
    """
    check_within(feed, step)
    located = feed.locate(step)
    columns = _count(feed, step, located)
    num_slots = feed.recipe.global_batch_size * feed.recipe.seq_len
    used = int(columns.used.sum())
    return {
        "step": step,
        "world_size": world_size,
        "rows": _rows(feed, located, columns, world_size),
        "slots": num_slots,
        "used": used,
        "filled": used / num_slots,
        "trained": int(columns.trained.sum()),
        "segments": int(columns.segments.sum()),
        "by_source": np.bincount(located.source, minlength=len(feed.plans)).tolist(),
    }


def _count(feed: Feed, step: int, located: Located) -> _Columns:
    columns = _Columns(
        used=np.zeros(len(located.source), np.int64),
        segments=np.zeros(len(located.source), np.int64),
        trained=np.zeros(len(located.source), np.int64),
        document=np.full(len(located.source), -1, np.int64),
    )
    for source in np.unique(located.source).tolist():
        mine, plan = np.flatnonzero(located.source == source), feed.plans[source]
        pieces = plan.pieces(located.row[mine])
        counts = count_rows(pieces, seq_len=feed.recipe.seq_len)
        columns.used[mine], columns.segments[mine] = counts
        if plan.split.has_weights:
            columns.trained[mine] = _count_made(feed, step, mine)
        else:
            columns.trained[mine] = count_trained(plan, pieces)
        columns.document[mine] = pieces_by_document(plan.split, pieces).only_document
    return columns


def _count_made(feed: Feed, step: int, seats: np.ndarray) -> np.ndarray:
    """Return how many labels of rows weigh something, int64, by making the rows.

    Where every token has a stored weight that is ten times as fast as finding their runs.
    """
    size = max(SLOTS_AT_ONCE // feed.recipe.seq_len, 1)
    counts = [
        np.count_nonzero(feed.rows(step, seats[start : start + size]).loss_weights, axis=1)
        for start in range(0, len(seats), size)
    ]
    return np.concatenate(counts)


def _rows(feed: Feed, located: Located, columns: _Columns, world_size: int) -> list[dict[str, Any]]:
    num_rows = len(located.source)
    ranks, microbatches = _seats(feed, num_rows, world_size)
    values = (
        located.source,
        located.epoch,
        ranks,
        microbatches,
        columns.used,
        columns.segments,
        columns.trained,
        columns.document,
    )
    rows = []
    for row, (source, epoch, rank, microbatch, used, segments, trained, document) in enumerate(
        zip(*(column.tolist() for column in values), strict=True)
    ):
        known = None if document < 0 else document
        rows.append(
            {
                "row": row,
                "rank": rank,
                "microbatch": microbatch,
                "source": source,
                "epoch": epoch,
                "segments": segments,
                "trained": trained,
                "used": used,
                "document": known,
                "provenance": told_place(feed.plans[source].split, known),
            }
        )
    filling = range(num_rows, feed.recipe.global_batch_size)
    return rows + [{**EMPTY_ROW, "row": row} for row in filling]


EMPTY_ROW = {
    "row": 0,
    "rank": None,
    "microbatch": None,
    "source": None,
    "epoch": None,
    "segments": 0,
    "trained": 0,
    "used": 0,
    "document": None,
    "provenance": None,
}


def _seats(feed: Feed, num_rows: int, world_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rank and the microbatch of each row of a step, int64, as batches have them."""
    recipe = feed.recipe
    if not 1 <= world_size <= recipe.global_batch_size:
        raise ConfigError(
            "bad world_size", expected=f"1 to {recipe.global_batch_size:,}", actual=world_size
        )
    ranks, microbatches = np.zeros(num_rows, np.int64), np.zeros(num_rows, np.int64)
    for rank in range(world_size):
        part = part_of(
            recipe.global_batch_size,
            recipe.seq_len,
            rank=rank,
            world_size=world_size,
            grad_accum=recipe.grad_accum,
        )
        seats = part.seats(num_rows)
        taken = np.flatnonzero(seats >= 0)
        ranks[seats[taken]], microbatches[seats[taken]] = rank, taken // part.width
    return ranks, microbatches
