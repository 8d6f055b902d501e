"""The segments of a packed batch, one a row, padded to one width.

For models whose attention knows a mask of padding alone. Chosen and rejected answers of rows of
pairs then stand in rows next to each other, [2 B, T].
"""

from __future__ import annotations

import numpy as np

from tokenreel.errors import ConfigError


def slots_of_segments(
    segment_ids: np.ndarray, *, width: int | None = None, rows: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return where each slot of the new rows comes from, and the row that each new row is of.

    segment_ids: [B, T] or [A, B, T]. Both int64, [n, width] or [A, n, width] and [n] or [A, n];
    they index the flattened slots and rows of the batch, and are -1 where there is padding. n is
    `rows`, or the most segments of a microbatch; `width`, or the longest of them.
    """
    seq_len, num_rows = segment_ids.shape[-1], segment_ids.shape[-2]
    flat = segment_ids.reshape(-1, seq_len)
    # Runs of slots of one number within a row, start to stop; those of padding are left out.
    begins = np.ones(flat.shape, bool)
    begins[:, 1:] = flat[:, 1:] != flat[:, :-1]
    start = np.flatnonzero(begins)
    stop = np.append(start[1:], flat.size)
    filled = flat.reshape(-1)[start] > 0
    start, stop = start[filled], stop[filled]
    owner = start // seq_len
    microbatch = owner // num_rows
    counts = np.bincount(microbatch, minlength=len(flat) // num_rows)
    width = _at_least("width", width, int((stop - start).max(initial=1)), "tokens of a segment")
    rows = _at_least("rows", rows, int(counts.max(initial=1)), "segments of a microbatch")
    # The n-th segment of its microbatch is row n.
    new_row = microbatch * rows + np.arange(len(start)) - (np.cumsum(counts) - counts)[microbatch]
    slots = np.full((len(counts) * rows, width), -1, np.int64)
    source = start[:, None] + np.arange(width)
    slots[new_row] = np.where(source < stop[:, None], source, -1)
    origin = np.full(len(counts) * rows, -1, np.int64)
    origin[new_row] = owner
    lead = (*segment_ids.shape[:-2], rows)
    return slots.reshape(*lead, width), origin.reshape(lead)


def _at_least(name: str, given: int | None, needed: int, noun: str) -> int:
    if given is not None and given < needed:
        raise ConfigError(
            f"{name} is too small for the batch",
            expected=f">= {needed:,}, the most {noun}",
            actual=given,
            remedy="make it larger, or rows smaller: answer_tokens bounds answers, packing single "
            "puts one group in a row",
        )
    return needed if given is None else given
