"""One source after the other, pass after pass: the order in which they stand.

For evaluations whose sources are not shuffled. It answers what a Mixture answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Succession:
    """All rows of the first source, all of the next, …; then from the first again.

    >>> two = Succession(num_rows=np.array([2, 3]))
    >>> [column.tolist() for column in two.locate(1, 6)]
    [[0, 1, 1, 1, 0, 0], [1, 0, 1, 2, 2, 3]]
    """

    num_rows: np.ndarray  # int64 [S]

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where each source begins in a pass, and the end of the pass, int64 [S + 1]."""
        return np.concatenate(([0], np.cumsum(self.num_rows)))

    def locate(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return source (int32) and row number (int64) of `count` positions from `start` on."""
        passes, within = np.divmod(np.arange(start, start + count), self._starts[-1])
        source = np.searchsorted(self._starts, within, side="right") - 1
        number = passes * self.num_rows[source] + within - self._starts[source]
        return source.astype(np.int32), number

    def counts(self, position: int) -> np.ndarray:
        """Return how many rows each source has given before a position, int64 [S]."""
        passes, within = divmod(position, int(self._starts[-1]))
        begun = np.clip(within - self._starts[:-1], 0, self.num_rows)
        return passes * self.num_rows + begun

    def positions(self, source: int, numbers: np.ndarray) -> np.ndarray:
        """Return the position of each row of a source, int64."""
        passes, within = np.divmod(numbers, self.num_rows[source])
        return passes * self._starts[-1] + self._starts[source] + within
