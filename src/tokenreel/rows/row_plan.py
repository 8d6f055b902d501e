"""What every way of making rows offers."""

from __future__ import annotations

from collections.abc import Mapping
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

    @property
    def ledger(self) -> Mapping[str, int]:
        """The account of every token of an epoch.

        placed + truncated + dropped = tokens; placed + overlap + padding = slots = rows · (T + 1);
        trained + masked = placed + overlap, the tokens that are shown twice.
        """

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers, int64 [n]; vectorised."""

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop): each row that shows tokens start to stop of a document."""
