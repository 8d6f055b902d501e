"""What every way of making rows offers."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split


class RowPlan(Protocol):
    """Row numbers to pieces of documents, and back; nothing is dropped after this."""

    @property
    def split(self) -> Split:
        """Where the tokens are."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""

    @property
    def settings(self) -> dict[str, object]:
        """What the rows depend on besides the store, ready for JSON; `version` among it."""

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers, int64 [n]; vectorised."""

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop): each row that shows tokens start to stop of a document."""
