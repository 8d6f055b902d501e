"""The table of a plan: which pieces stand in which row, and where a document went.

Rows are a CSR table over pieces; `by_document` is the way back. Blocks of a plan are
made apart from each other and strung together here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np

FIRST = 1  # flag of a piece that begins a segment
COLUMNS: dict[str, np.dtype] = {
    "row_offsets": np.dtype("<i8"),
    "documents": np.dtype("<i8"),
    "positions": np.dtype("<i8"),
    "lengths": np.dtype("<i4"),
    "flags": np.dtype("u1"),
    "by_document": np.dtype("<i8"),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The columns of a plan, or of a block of it.

    row_offsets [rows + 1]: row r is pieces row_offsets[r] to row_offsets[r + 1]. All others
    [pieces]: documents, the document of each piece; positions, where its first token lies in
    the split; lengths; flags; by_document, the pieces in order of their documents.
    """

    row_offsets: np.ndarray
    documents: np.ndarray
    positions: np.ndarray
    lengths: np.ndarray
    flags: np.ndarray
    by_document: np.ndarray

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.row_offsets) - 1

    def pieces_of(self, document: int) -> np.ndarray:
        """Return the numbers of a document's pieces, int64, in its own order; O(log pieces)."""
        first, last = (
            bisect_left(self.by_document, number, key=lambda piece: int(self.documents[piece]))
            for number in (document, document + 1)
        )
        return self.by_document[first:last]

    def row_of(self, pieces: np.ndarray) -> np.ndarray:
        """Return the rows that hold the pieces with these numbers, int64."""
        return np.searchsorted(self.row_offsets, pieces, side="right") - 1


def renumber(blocks: Iterable[Table]) -> Iterator[Table]:
    """Yield tables that need only be strung together, rows and pieces counted through all."""
    num_pieces = 0
    begun = False
    for block in blocks:
        offsets = block.row_offsets[1:] if begun else block.row_offsets
        columns = {item.name: getattr(block, item.name) for item in fields(block)}
        columns["row_offsets"] = offsets + num_pieces
        columns["by_document"] = block.by_document + num_pieces
        yield Table(**{name: columns[name].astype(kind) for name, kind in COLUMNS.items()})
        num_pieces += len(block.documents)
        begun = True


def join(blocks: Iterable[Table]) -> Table:
    """Return the table that all blocks together are, in memory."""
    parts = list(renumber(blocks))
    return Table(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    )
