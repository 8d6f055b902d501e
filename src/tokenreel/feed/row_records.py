"""What the store keeps of the document that each row of a batch shows: answers, arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenreel.order.order import Located
from tokenreel.rows.row_plan import RowPlan


def records_of(plans: Sequence[RowPlan], located: Located, shape: tuple[int, ...]) -> list[Any]:
    """Return the record of each row, [B] or [A][B], each an object of its own; some 20 µs a row.

    None for a row that is padding, that shows several documents, or whose store keeps no records.
    `located` has a row for each of the batch's; those of source -1 are padding.
    """
    records: list[Any] = [None] * len(located.source)
    for source in np.unique(located.source[located.source >= 0]).tolist():
        split = plans[source].split
        if not split.has_records:
            continue
        mine = np.flatnonzero(located.source == source)
        documents = plans[source].pieces(located.row[mine]).only_document
        for row, document in zip(mine.tolist(), documents.tolist(), strict=True):
            if document >= 0:
                records[row] = split.record(document)
    if len(shape) == 2:
        return records
    width = shape[1]
    return [records[start : start + width] for start in range(0, len(records), width)]
