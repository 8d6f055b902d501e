"""The table of packed rows: columns that do not fit together are damage, however small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokenreel.errors import DamageError
from tokenreel.rows.plan_table import COLUMNS, TABLE

ONE_PIECE = {name: np.zeros(1, dtype) for name, dtype in COLUMNS.items()}
ONE_PIECE["row_offsets"] = np.array([0, 1], np.int64)


def test_a_row_of_one_piece_is_a_table() -> None:
    assert TABLE.whole(ONE_PIECE, Path("p")).num_rows == 1


@pytest.mark.parametrize("missing", COLUMNS)
def test_a_column_that_is_not_there_is_damage_even_where_each_has_one_entry(missing: str) -> None:
    columns = {name: column for name, column in ONE_PIECE.items() if name != missing}
    with pytest.raises(DamageError, match="as many pieces in every column"):
        TABLE.whole(columns, Path("p"))
