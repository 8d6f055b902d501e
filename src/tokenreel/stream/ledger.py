"""The account of a stream: every token that was read, and every slot of every row.

    placed + truncated + dropped + pending  =  tokens read
    placed + overlap + padding              =  slots  =  rows · (T + 1)
    trained + masked                        =  placed + overlap

Truncated is what `max_doc_tokens` cuts off. Dropped are documents too short to hold a
transition, rows without a trained target, and what the end leaves over (data.end = drop).
Overlap are the tokens shown twice: a window begins with the last token of the one before,
and so does a segment of a document that is longer than a row. Pending are documents of a
block whose rows have not all been given out. Counts are part of the state.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

NAMES = (
    "documents",
    "short_documents",
    "truncated_documents",
    "skipped_records",
    "tokens",
    "truncated",
    "dropped",
    "placed",
    "overlap",
    "trained",
    "masked",
    "padding",
    "rows",
    "untrained_rows",
)
COLUMN = {name: number for number, name in enumerate(NAMES)}
SHOWN = [COLUMN[name] for name in ("placed", "overlap", "trained", "masked", "padding", "rows")]


def counts_of(num_rows: int, **columns: np.ndarray | int) -> np.ndarray:
    """Return what each row adds to the account, int64 [rows, names].

    >>> counts_of(2, rows=1, padding=np.array([0, 3]))[:, COLUMN["padding"]].tolist()
    [0, 3]
    """
    counts = np.zeros((num_rows, len(NAMES)), np.int64)
    for name, values in columns.items():
        counts[:, COLUMN[name]] = values
    return counts


def nothing_counted() -> np.ndarray:
    """Return an account in which nothing has happened, int64 [names]."""
    return np.zeros(len(NAMES), np.int64)


def as_dropped(counts: np.ndarray) -> np.ndarray:
    """Return the counts of rows that are not shown: what was placed is dropped."""
    changed = counts.copy()
    changed[..., COLUMN["dropped"]] += counts[..., COLUMN["placed"]]
    changed[..., SHOWN] = 0
    return changed


def named(counts: np.ndarray) -> dict[str, int]:
    """Return counts by name, ready for JSON."""
    return dict(zip(NAMES, counts.tolist(), strict=True))


def from_named(counts: Mapping[str, int]) -> np.ndarray:
    """Return the counts that `named` gave names to."""
    return np.array([counts[name] for name in NAMES], np.int64)


def account(counts: np.ndarray, *, seq_len: int) -> dict[str, float]:
    """Return the whole account of these counts: names, what follows from them, utilisation."""
    told: dict[str, float] = dict(named(counts))
    slots = told["rows"] * (seq_len + 1)
    told["slots"] = slots
    told["pending"] = told["tokens"] - told["placed"] - told["truncated"] - told["dropped"]
    told["utilisation"] = (slots - told["padding"]) / slots if slots else 0.0
    return told
