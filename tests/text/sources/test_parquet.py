"""Parquet: row groups, only the wanted columns, nulls stay missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tokenreel.errors import InputError
from tokenreel.text.sources import Record, open_source

Reading = Callable[..., list[Record]]


def write(path: Path, rows: list[dict[str, Any]], group: int = 10) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


def test_records_are_equal_for_any_division_and_count_rows_of_the_file(
    tmp_path: Path, read_all: Reading
) -> None:
    rows = [{"text": f"document {n}" * n, "id": f"d{n}", "other": n} for n in range(95)]
    source = open_source(write(tmp_path / "a.parquet", rows))
    whole = read_all(source)
    assert [(r.text, r.provenance.row, r.provenance.id) for r in whole] == [
        (row["text"], n, row["id"]) for n, row in enumerate(rows)
    ]
    assert len(source.ranges(1)) == 10
    for target_bytes in (1, 500, 5_000):
        assert read_all(source, target_bytes) == whole


def test_it_resumes_at_every_row(
    tmp_path: Path, assert_resumes_everywhere: Callable[..., None]
) -> None:
    source = open_source(write(tmp_path / "a.parquet", [{"text": str(n)} for n in range(23)], 5))
    assert_resumes_everywhere(source)
    assert_resumes_everywhere(source, 1)


def test_keys_that_are_missing_stay_missing(tmp_path: Path, read_all: Reading) -> None:
    chats = [
        {"messages": [{"role": "user", "content": "hi"}]},
        {"messages": [{"role": "tool", "content": "3", "name": "add"}]},
    ]
    source = open_source(write(tmp_path / "a.parquet", chats), text_key=None)
    assert [record.value for record in read_all(source)] == chats


def test_a_missing_column_names_the_columns_that_are_there(
    tmp_path: Path, read_all: Reading
) -> None:
    path = write(tmp_path / "a.parquet", [{"body": "x", "url": "y"}])
    with pytest.raises(InputError) as caught:
        read_all(open_source(path))
    assert str(caught.value).startswith(
        "a.parquet: missing column (expected 'text', got the columns 'body', 'url'); name"
    )


def test_a_null_text_is_bad_and_skipped_only_on_request(tmp_path: Path, read_all: Reading) -> None:
    path = write(tmp_path / "a.parquet", [{"text": "x"}, {"text": None}, {"text": "z"}])
    with pytest.raises(InputError, match=r"a\.parquet:2: missing key"):
        read_all(open_source(path))
    source = open_source(path, on_bad="skip")
    reader = source.read(source.ranges(1)[0])
    assert [record.text for record in reader] == ["x", "z"]
    assert reader.skipped.places == [{"reason": "missing key", "file": "a.parquet", "row": 1}]


def test_a_row_that_is_not_utf8_is_found_among_good_ones(tmp_path: Path) -> None:
    raw = pa.array([b"good", b"b\xffd", b"fine"], pa.binary())
    text = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    pq.write_table(pa.table({"text": text}), tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet", on_bad="skip")
    reader = source.read(source.ranges(1)[0])
    assert [record.text for record in reader] == ["good", "fine"]
    assert reader.skipped.reasons == {"invalid UTF-8": 1}
    assert reader.skipped.places[0]["row"] == 1


@pytest.mark.parametrize("keep", [0, 3, 40, -1])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, keep: int, read_all: Reading) -> None:
    path = write(tmp_path / "a.parquet", [{"text": "x" * 100}])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"a\.parquet: the Parquet file cannot be read"):
        read_all(open_source(path))
