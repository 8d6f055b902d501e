"""Which document each input token of a batch belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenreel.feed.trace import pieces_by_document
from tokenreel.order.order import Located
from tokenreel.rows.pieces import ragged_index
from tokenreel.rows.row_plan import RowPlan


def document_ids_of(
    plans: Sequence[RowPlan], located: Located, shape: tuple[int, ...]
) -> np.ndarray:
    """Return the number, in its split, of the document of each input token, int64 of this shape.

    -1 where there is no token, or documents are not known. `located` has a row for each of the
    batch's; those of source -1 are padding.
    """
    seq_len = shape[-1]
    # One column more than the batch has inputs: a row of T + 1 tokens ends with a label.
    ids = np.full((len(located.source), seq_len + 1), -1, np.int64)
    for source in np.unique(located.source[located.source >= 0]).tolist():
        mine = np.flatnonzero(located.source == source)
        plan = plans[source]
        pieces = pieces_by_document(plan.split, plan.pieces(located.row[mine]))
        # Pieces of a row lie end to end: where each begins is the sum of those before it.
        begins = np.cumsum(pieces.length) - pieces.length
        begins -= begins[pieces.row_offsets[:-1]][pieces.row]
        if pieces.lead is not None:
            begins += pieces.lead[pieces.row]
        flat = ragged_index(mine[pieces.row] * (seq_len + 1) + begins, pieces.length)
        ids.reshape(-1)[flat] = np.repeat(pieces.document, pieces.length)
    return np.ascontiguousarray(ids[:, :-1]).reshape(shape)
