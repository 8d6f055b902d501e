"""Parquet: row groups, only the wanted columns, nulls stay missing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
    with pytest.raises(InputError) as caught:
        read_all(open_source(path))
    assert str(caught.value).startswith(
        "a.parquet:2: 'text' is not a string (expected a string, got null); choose another"
    )
    source = open_source(path, on_bad="skip")
    reader = source.read(source.ranges(1)[0])
    assert [record.text for record in reader] == ["x", "z"]
    reason = "'text' is not a string"
    assert reader.skipped.places == [{"reason": reason, "file": "a.parquet", "row": 1}]


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


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 1200), st.integers(0, 255)), min_size=1, max_size=4))
@example([(9, 255)])  # the length of the footer
@example([(400, 0)])
def test_a_footer_with_other_bytes_is_read_or_refused_by_name(
    changes: list[tuple[int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"text": "x" * 20, "tags": [{"a": "b"}]} for _ in range(20)]
        path = write(Path(folder, "a.parquet"), rows)
        data = bytearray(path.read_bytes())
        for from_end, byte in changes:
            data[-from_end] = byte
        path.write_bytes(data)
        for text_key in ("text", None):
            try:
                source = open_source(path, text_key=text_key, on_bad="skip")
                for part in source.ranges(1):
                    list(source.read(part))
            except InputError as error:
                assert str(error).startswith("a.parquet")


@pytest.mark.parametrize("text_key", ["text", None])
def test_two_columns_of_one_name_are_refused(
    tmp_path: Path, text_key: str | None, read_all: Reading
) -> None:
    table = pa.Table.from_arrays([pa.array(["one"]), pa.array(["two"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    message = r"two columns have the same name \(expected each name once, got 'text'\)"
    with pytest.raises(InputError, match=rf"a\.parquet: {message}"):
        read_all(open_source(tmp_path / "a.parquet", text_key=text_key))
    with pytest.raises(InputError, match=rf"pyarrow's Table: {message}"):
        open_source(table)


def test_two_fields_of_one_name_inside_a_column_are_refused(
    tmp_path: Path, read_all: Reading
) -> None:
    field = pa.StructArray.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["role", "role"])
    table = pa.table({"text": ["fine"], "message": field})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"two columns have the same name .*'role'"):
        read_all(open_source(tmp_path / "a.parquet", text_key=None))
    assert read_all(open_source(tmp_path / "a.parquet"))[0].text == "fine"
