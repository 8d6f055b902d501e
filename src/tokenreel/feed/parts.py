"""Which rows of a step a rank gets, and in what shape: any number of ranks is served.

The rows of a step are shared out over ranks, microbatches and devices as evenly as they go,
in contiguous parts that differ by one row at most. Every part has the shape of the largest;
what is missing in the others is filled with padding that weighs nothing.

    8 rows, 3 ranks    0 1 · │ 2 3 4 │ 5 6 7        · = no row: padding of weight 0
"""

from __future__ import annotations

import numpy as np

from tokenreel.errors import ConfigError

NO_ROW = -1
MAX_RANKS = 2**31


class Part:
    """A rank's part of every step: parts first to first + count of `total`, `width` rows each.

    shape is that of the rank's batch, [B, T] or, with accumulation, [A, B, T].

    >>> part = Part(first=0, count=1, total=3, width=3, shape=(3, 5))
    >>> part.seats(8).tolist(), part.seats(4).tolist()
    ([0, 1, -1], [0, -1, -1])
    """

    def __init__(
        self, *, first: int, count: int, total: int, width: int, shape: tuple[int, ...]
    ) -> None:
        self.first, self.count, self.total, self.width = first, count, total, width
        self.shape = shape
        self.num_rows = count * width  # of the rank's batch, with those that are padding
        self._seats: dict[int, np.ndarray] = {}

    def seats(self, num_rows: int) -> np.ndarray:
        """Return the seats of a step of so many rows that are in this part, int64; -1: padding."""
        seats = self._seats.get(num_rows)
        if seats is None:
            seats = self._seats[num_rows] = self._find_seats(num_rows)
        return seats

    def _find_seats(self, num_rows: int) -> np.ndarray:
        bounds = np.arange(self.first, self.first + self.count + 1) * num_rows // self.total
        seats = bounds[:-1, None] + np.arange(self.width)
        return np.where(seats < bounds[1:, None], seats, NO_ROW).reshape(-1)


def part_of(
    global_batch_size: int,
    seq_len: int,
    *,
    rank: int,
    world_size: int,
    grad_accum: int = 1,
    devices: int = 1,
) -> Part:
    """Return the part of a rank, or raise ConfigError; `devices` share each of its microbatches."""
    if world_size > MAX_RANKS:
        raise ConfigError("bad world_size", expected=f"<= {MAX_RANKS:,}", actual=world_size)
    if world_size < 1 or not 0 <= rank < world_size:
        raise ConfigError("bad rank", expected=f"0 to {world_size - 1}", actual=rank)
    count = grad_accum * devices
    width = -(-global_batch_size // (world_size * count))
    lead = (grad_accum, devices * width) if grad_accum > 1 else (devices * width,)
    return Part(
        first=rank * count,
        count=count,
        total=world_size * count,
        width=width,
        shape=(*lead, seq_len),
    )
