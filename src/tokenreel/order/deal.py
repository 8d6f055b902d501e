"""Which row of a step sits where in its batch: dealt by a permutation of (seed, step).

    position of the run   step · batch_size + k      k-th row of the step, as the mixture has it
    seat of the batch     any of them, each equally likely, and the way back

The composition of a step stays as it is. Without dealing a seat, hence a rank or a
microbatch, would belong to a source: with shares .9 and .1 and batches of 10 the mixture
itself never has the second source first or last. Rows of a single source are shuffled
already and are not dealt, nor is an evaluation in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.order.permutation import Permutation
from tokenreel.seeds import derive_key, scramble

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """Steps of `batch_size` rows, the last one of what is left; `key` None: nothing is moved.

    `num_rows` is the number of rows in the run; None: it has no end.

    >>> deal = Deal(batch_size=4, num_rows=10, key=1)
    >>> deal.num_rows_in(2)
    2
    >>> sorted(deal.positions(1, np.arange(4)).tolist())
    [4, 5, 6, 7]
    """

    batch_size: int
    num_rows: int | None = None
    key: int | None = None

    def num_rows_in(self, step: int) -> int:
        """Return how many rows a step has; 0 beyond the end."""
        if self.num_rows is None:
            return self.batch_size
        return max(min(self.batch_size, self.num_rows - step * self.batch_size), 0)

    def positions(self, step: int, seats: np.ndarray) -> np.ndarray:
        """Return the position of the row in each seat of a step, int64."""
        return step * self.batch_size + self._permutation(step).forward(seats)

    def seat(self, position: int) -> tuple[int, int]:
        """Return the step that shows a position, and its seat there."""
        step, within = divmod(position, self.batch_size)
        return step, int(self._permutation(step).inverse(np.array([within]))[0])

    def _permutation(self, step: int) -> Permutation | Unmoved:
        if self.key is None:
            return Unmoved()
        key = int(scramble(np.array(step), self.key))
        return Permutation(self.num_rows_in(step), key)


class Unmoved:
    """The permutation that moves nothing."""

    def forward(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions."""
        return positions

    inverse = forward


def deal_key(seed: int) -> int:
    """Return the key of a run's deal."""
    return derive_key("deal", seed)
