"""The table of a plan: which pieces stand in which row, and where a document went.

Rows are a CSR table over pieces; `by_document` finds the pieces of a document. Blocks of a plan
are made apart from each other and put end to end here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.rows.plan_file import Arrays, Columns, no_plan

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
        """Return the numbers of a document's pieces, int64, in its own order; O(log pieces).

        Raise IndexError where `by_document` names a piece that there is not, or another's.
        """
        first, last = (
            bisect_left(self.by_document, number, key=self._document_of)
            for number in (document, document + 1)
        )
        pieces = self.by_document[first:last]
        inside = (pieces >= 0) & (pieces < len(self.documents))
        if not inside.all() or (self.documents[pieces] != document).any():
            raise IndexError(f"other pieces than those of document {document:,} at {first:,}")
        return pieces

    def _document_of(self, piece: int) -> int:
        if not 0 <= piece < len(self.documents):
            raise IndexError(f"no piece {piece:,} of {len(self.documents):,}")
        return int(self.documents[piece])

    def row_of(self, pieces: np.ndarray) -> np.ndarray:
        """Return the rows that hold the pieces with these numbers, int64."""
        return np.searchsorted(self.row_offsets, pieces, side="right") - 1


def renumber(blocks: Iterable[Table]) -> Iterator[Arrays]:
    """Yield the columns of each block, rows and pieces numbered through all blocks before it."""
    num_pieces = 0
    begun = False
    for block in blocks:
        offsets = block.row_offsets[1:] if begun else block.row_offsets
        yield {
            **{name: getattr(block, name) for name in COLUMNS},
            "row_offsets": offsets + num_pieces,
            "by_document": block.by_document + num_pieces,
        }
        num_pieces += len(block.documents)
        begun = True


def _table_of(columns: Arrays, where: Path) -> Table:
    """Return the table that columns are; DamageError unless all columns of pieces are as long."""
    counts = {name: len(columns[name]) if name in columns else 0 for name in COLUMNS}
    pieces = {count for name, count in counts.items() if name != "row_offsets"}
    if counts["row_offsets"] < 2 or len(pieces) != 1:
        expected = "one row or more, and as many pieces in every column"
        raise no_plan(counts, where=where, expected=expected)
    return Table(**columns)


TABLE = Columns(dtypes=COLUMNS, parts=renumber, whole=_table_of)
