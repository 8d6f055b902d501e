"""Parquet: row groups streamed in batches of about 8 MiB, only the columns that are wanted.

A range is a run of row groups of one file. Resuming decodes the cursor's row group again
and passes over the rows before it. In Parquet a missing key and a null are the same thing,
so nulls inside objects are left out: a tool schema is not filled with nulls.
It does not bound what one page decompresses to; pyarrow decodes whole pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenreel.errors import InputError, MissingExtraError, TokenreelError
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.extract import INVALID_UTF8, REMEDIES, record_of
from tokenreel.text.sources.read_options import MIB, ReadOptions
from tokenreel.text.sources.record import Bad, Record, bad_record
from tokenreel.text.sources.source_protocol import Cursor, Range, Step

BATCH_BYTES = 8 * MIB
MAX_BATCH_ROWS = 4096


def divide_row_groups(path: Path, name: str, *, target_bytes: int) -> list[Range]:
    """Return ranges of consecutive row groups, each closed once it has `target_bytes`."""
    with _readable(name), _open(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        sizes = [(group.num_rows, group.total_byte_size) for group in groups]
    parts = []
    start, row, num_rows, num_bytes = 0, 0, 0, 0
    for stop, (group_rows, group_bytes) in enumerate(sizes, start=1):
        num_rows, num_bytes = num_rows + group_rows, num_bytes + group_bytes
        if num_bytes >= target_bytes or stop == len(sizes):
            part = Range(
                kind="parquet", file=name, start=start, stop=stop, row=row, num_bytes=num_bytes
            )
            parts.append(part)
            start, row, num_rows, num_bytes = stop, row + num_rows, 0, 0
    return parts


def row_steps(
    path: Path, part: Range, *, cursor: Cursor | None, options: ReadOptions
) -> Iterator[Step]:
    """Yield each row's record, or what is wrong with it, with the cursor of the next row."""
    name = part.file
    start = {"row_group": part.start, "row": 0} if cursor is None else cursor
    with _readable(name), _open(path) as file:
        columns = _wanted_columns(file, name, options)
        first = sum(file.metadata.row_group(i).num_rows for i in range(start["row_group"]))
        for group in range(start["row_group"], part.stop):
            skip = start["row"] if group == start["row_group"] else 0
            num_rows = file.metadata.row_group(group).num_rows
            for row, value in enumerate(_rows(file, group, columns)):
                if row < skip:
                    continue
                place = Provenance(file=name, row=first + row)
                following = (
                    {"file": name, "row_group": group, "row": row + 1}
                    if row + 1 < num_rows
                    else {"file": name, "row_group": group + 1, "row": 0}
                )
                yield arrow_record(value, place, options), following
            first += num_rows


def arrow_record(value: object, place: Provenance, options: ReadOptions) -> Record | Bad:
    """Return the record of one Arrow row; a UnicodeDecodeError stands for a row it broke."""
    if isinstance(value, UnicodeDecodeError):
        shown = value.object[value.start : value.start + 4].hex(" ")
        return bad_record(
            INVALID_UTF8,
            place,
            actual=f"{shown} at byte {value.start:,} of the value",
            remedy=REMEDIES[INVALID_UTF8],
        )
    # A null text is said to be null: only in whole objects a null is a key that is missing.
    whole = options.text_key is None
    return record_of(without_nulls(value) if whole else value, place, options)


def without_nulls(value: Any) -> Any:
    """Return the value with null fields of objects left out.

    >>> without_nulls({"role": "user", "name": None, "parts": [None, {"a": None}]})
    {'role': 'user', 'parts': [None, {}]}
    """
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def table_rows(batch: Any) -> Iterator[Any]:
    """Yield the rows of an Arrow batch as dicts; a row that is not UTF-8 as its error."""
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError:
        rows = [_row_or_error(batch.slice(i, 1)) for i in range(batch.num_rows)]
    yield from rows


def _row_or_error(batch: Any) -> Any:
    try:
        return batch.to_pylist()[0]
    except UnicodeDecodeError as error:
        return error


def _open(path: Path) -> Any:
    try:
        from pyarrow import parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="text", purpose="reading Parquet") from error
    return parquet.ParquetFile(path, memory_map=True, pre_buffer=False)


def _rows(file: Any, group: int, columns: list[str] | None) -> Iterator[Any]:
    facts = file.metadata.row_group(group)
    row_bytes = max(1, facts.total_byte_size // max(1, facts.num_rows))
    batch_rows = min(MAX_BATCH_ROWS, max(1, BATCH_BYTES // row_bytes))
    for batch in file.iter_batches(batch_rows, row_groups=[group], columns=columns):
        yield from table_rows(batch)


def _wanted_columns(file: Any, name: str, options: ReadOptions) -> list[str] | None:
    if options.text_key is None:
        require_unique(file.schema_arrow, where=name)
        return None
    present = file.schema_arrow.names
    if options.text_key not in present:
        raise InputError(
            "missing column",
            where=name,
            expected=repr(options.text_key),
            actual=f"the columns {', '.join(map(repr, present))}",
            remedy="name the column of the text with text_key; chats are built with chat=True",
        )
    keys = (options.text_key, options.id_key)
    wanted = [field for field in file.schema_arrow if field.name in keys]
    require_unique(wanted, where=name)
    return [field.name for field in wanted]


def require_unique(fields: Iterable[Any], *, where: str) -> None:
    """Raise InputError where columns, or fields inside them, have the same name: which is meant?"""
    waiting = [list(fields)]
    while waiting:
        siblings = waiting.pop()
        twice = [name for name, count in Counter(f.name for f in siblings).items() if count > 1]
        if twice:
            raise InputError(
                "two columns have the same name",
                where=where,
                expected="each name once",
                actual=repr(twice[0]),
                remedy="rename one of them",
            )
        for kind in (field.type for field in siblings):
            waiting.append([kind.field(number) for number in range(kind.num_fields)])


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turn whatever the library says of a file that it cannot read into one InputError."""
    try:
        yield
    except TokenreelError:
        raise
    # A damaged footer gives an OSError, a ValueError, a NotImplementedError, a MemoryError …
    except Exception as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        is_of_disk = getattr(error, "errno", None) is not None
        raise InputError(
            f"the Parquet file cannot be read ({said})",
            where=name,
            expected=None if is_of_disk else "a complete Parquet file",
            remedy="look at disk and permissions" if is_of_disk else "fetch or write it again",
        ) from error
