"""Fault 20: a broken line, no final newline, a line of 1 GB: an error, in bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tokenreel.errors import InputError
from tokenreel.text.sources import Range, Reader, ReadOptions, open_source
from tokenreel.text.sources.jsonl import line_steps

GOOD = b'{"text": "fine"}\n'
MIB = 1 << 20


def read(path: Path, **settings: Any) -> Reader:
    source = open_source(path, **settings)
    return source.read(source.ranges(1 << 50)[0])


@pytest.mark.parametrize(
    ("line", "byte", "shown"),
    [
        (b'{"text": "cut', 13, "got its end"),
        (b'{"text": "a"} extra', 14, "got 'extra'"),
        ('{"text": "ää" x}'.encode(), 16, "got 'x}'"),
        (b"{'text': 'a'}", 1, "got \"'text': 'a'}\""),
        (b'{"text": NaN}', 9, "got 'NaN}'"),
        (b'{"text": "tab\t"}', 13, "got"),
        (b"[" * 100_000, 0, "broken JSON"),
    ],
)
def test_a_broken_line_names_line_and_byte(
    tmp_path: Path, line: bytes, byte: int, shown: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD * 2 + line + b"\n" + GOOD)
    reader = read(path)
    assert [next(reader).text, next(reader).text] == ["fine", "fine"]
    with pytest.raises(InputError) as caught:
        next(reader)
    message = str(caught.value)
    assert message.startswith("a.jsonl:3: broken JSON (") and shown in message
    if byte:
        assert f"at byte {2 * len(GOOD) + byte} (expected one JSON object per line" in message
    skipping = read(path, on_bad="skip")
    assert [record.provenance.line for record in skipping] == [1, 2, 4]
    assert skipping.skipped.count == 1


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n", b"\r\n", b"\n \n"])
def test_no_final_newline_and_blank_lines_are_fine(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" + GOOD + b"  \r\n" + GOOD.rstrip() + end)
    assert [record.provenance.line for record in read(path)] == [2, 4]


def test_a_line_of_one_gigabyte_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(GOOD + b'{"text": "')
        file.truncate(1 << 30)  # a hole: nothing is written, all of it would be read
    # Read without the planning pass, whose memory the next test bounds: it takes seconds for 1 GB.
    part = Range(kind="jsonl", file="a.jsonl", stop=1 << 30)
    tracemalloc.start()
    try:
        steps = line_steps(path, part, cursor=None, options=ReadOptions())
        reader = Reader(steps, cursor=None, on_bad="error")
        assert next(reader).text == "fine"
        with pytest.raises(InputError) as caught:
            next(reader)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(caught.value) == (
        "a.jsonl:2: record over the limit at byte 17 (expected at most 67,108,864 bytes, got more);"
        ' raise max_record_bytes, or pass on_bad="skip" to count it and go on'
    )
    assert peak < 80 * MIB


@pytest.mark.parametrize("limit", [1000, MIB])
def test_a_skipped_long_line_costs_no_more_than_the_limit(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"x" * (40 * MIB) + b"\n" + GOOD)
    tracemalloc.start()
    try:
        reader = read(path, on_bad="skip", max_record_bytes=limit)
        records = list(reader)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [record.provenance.line for record in records] == [1, 3]
    assert reader.skipped.places == [
        {"reason": "record over the limit", "file": "a.jsonl", "row": 1, "byte": len(GOOD)}
    ]
    assert peak < limit + 6 * MIB


def test_the_limit_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD)
    num_bytes = len(GOOD) - 1
    assert len(list(read(path, max_record_bytes=num_bytes))) == 1
    with pytest.raises(InputError, match="record over the limit at byte 0"):
        list(read(path, max_record_bytes=num_bytes - 1))


def test_a_long_line_in_the_middle_keeps_later_ranges_right(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"x" * (3 * MIB) + b"\n" + GOOD * 3)
    source = open_source(path, on_bad="skip", max_record_bytes=1000)
    parts = source.ranges(10)
    lines = [record.provenance.line for part in parts for record in source.read(part)]
    assert lines == [1, 3, 4, 5] and len(parts) == 5
