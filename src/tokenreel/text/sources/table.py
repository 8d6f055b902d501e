"""Tables in memory as records: data frames, Arrow tables and datasets, a row a dict.

Whatever speaks Arrow's C stream (pandas from 2.2 on, polars, pyarrow, duckdb) is read
through it, which costs a copy of what Arrow cannot share; a split of `datasets` as it is. No
library is imported to look. Rows are made a block at a time, in the order they stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from tokenreel.errors import ConfigError, InputError, MissingExtraError
from tokenreel.text.sources.parquet import require_unique

BLOCK_ROWS = 1024

Columns = Mapping[str, Sequence[Any]]


class TableRows(Sequence[dict[str, Any]]):
    """Rows of a table of columns; `read(start, stop)` returns those columns.

    >>> columns = {"text": ["a", "b", "c"], "n": [1, 2, 3]}
    >>> rows = TableRows(3, lambda start, stop: {k: v[start:stop] for k, v in columns.items()})
    >>> rows[-1], len(rows)
    ({'text': 'c', 'n': 3}, 3)
    """

    def __init__(self, num_rows: int, read: Callable[[int, int], Columns]) -> None:
        self._num_rows, self._read = num_rows, read
        self._block: tuple[int, list[dict[str, Any]]] = (-1, [])  # its number, and its rows

    def __len__(self) -> int:
        return self._num_rows

    @overload
    def __getitem__(self, row: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, row: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, row: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        number = row + len(self) if row < 0 else row
        if not 0 <= number < len(self):
            raise IndexError(f"row {row:,} of {len(self):,}")
        block, within = divmod(number, BLOCK_ROWS)
        kept, rows = self._block
        if kept != block:
            start = block * BLOCK_ROWS
            columns = self._read(start, min(start + BLOCK_ROWS, len(self)))
            names, values = list(columns), zip(*columns.values(), strict=True)
            rows = [dict(zip(names, row_values, strict=True)) for row_values in values]
            self._block = block, rows
        return rows[within]


# Functions of a start and a stop, as classes: worker processes are sent them.
@dataclass(frozen=True, slots=True)
class _ArrowColumns:
    table: Any

    def __call__(self, start: int, stop: int) -> Columns:
        columns: Columns = self.table.slice(start, stop - start).to_pydict()
        return columns


@dataclass(frozen=True, slots=True)
class _DatasetColumns:
    dataset: Any

    def __call__(self, start: int, stop: int) -> Columns:
        columns: Columns = self.dataset[start:stop]
        return columns


def table_name(given: object) -> str | None:
    """Return what a table is called whose iteration does not give its rows; None for the rest."""
    library, kind = _type_of(given)
    is_frame = library in ("pandas", "polars") and kind in ("DataFrame", "LazyFrame")
    return f"{library}'s {kind}" if is_frame or _speaks_arrow(given) else None


def records_of(table: object) -> Iterable[Mapping[str, Any]] | None:
    """Return the rows of a table, or None for another object. A reader of batches is used up."""
    library, kind = _type_of(table)
    given: Any = table
    if library == "datasets" and kind == "Dataset":
        plain = given.with_format(None)
        return TableRows(len(plain), _DatasetColumns(plain))
    if library == "datasets" and kind == "IterableDataset":
        return iter(given)
    if _speaks_arrow(table):
        rows = _table(given)
        require_unique(rows.schema, where=f"{library}'s {kind}")
        return TableRows(rows.num_rows, _ArrowColumns(rows))
    if library in ("pandas", "polars", "pyarrow", "datasets"):
        raise ConfigError(
            "documents cannot be read from this",
            expected="a data frame, an Arrow table, or one split of a dataset",
            actual=f"{library}'s {kind}",
            remedy="choose a split or make a frame of it, and name the column with text_key",
        )
    return None


def _type_of(given: object) -> tuple[str, str]:
    """Return the library and the name of a type."""
    return type(given).__module__.partition(".")[0], type(given).__name__


def _speaks_arrow(given: object) -> bool:
    """Tell whether an object offers Arrow's C stream of a table; a single column is no table."""
    is_column = type(given).__name__ in ("Series", "ChunkedArray")
    return hasattr(type(given), "__arrow_c_stream__") and not is_column


def _table(given: Any) -> Any:
    """Return the Arrow table of anything that speaks Arrow's C stream."""
    try:
        import pyarrow  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="text", purpose="reading tables") from error
    try:
        return pyarrow.table(given)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"the table cannot be read as Arrow's ({said})",
            where=type(given).__name__,
            remedy="give it columns of one type and of different names",
        ) from error
