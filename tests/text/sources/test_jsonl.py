"""JSONL: the same records however it is divided, compressed or resumed."""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import native
from tokenreel.errors import InputError
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources import ReadOptions, Record, TextSource, open_source
from tokenreel.text.sources import blocks as blocks_module
from tokenreel.text.sources.jsonl import parse_line
from tokenreel.text.sources.lines import cut_between_lines, index_lines, split_lines

Reading = Callable[..., list[Record]]
Writing = Callable[[Path, list[Any]], Path]

clean_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"))
separators = st.sampled_from(["\n", "\r\n", "\n\n", "\n  \n", "\n\r\n\n"])


def _lines_by_hand(data: bytes) -> list[tuple[int, int, str]]:
    """Read with nothing but `split` and `json`: (row, byte, text)."""
    found, byte = [], 0
    for row, line in enumerate(data.split(b"\n")):
        if line.strip():
            found.append((row, byte, json.loads(line)["text"]))
        byte += len(line) + 1
    return found


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.tuples(clean_text, separators), max_size=30),
    final_newline=st.booleans(),
    target_bytes=st.integers(1, 400),
)
def test_records_rows_and_bytes_are_those_of_a_plain_loop_for_any_division(
    texts: list[tuple[str, str]], final_newline: bool, target_bytes: int
) -> None:
    data = "".join(json.dumps({"text": text}) + end for text, end in texts).encode()
    if not final_newline:
        data = data.rstrip(b"\r\n ")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_bytes(data)
        source = open_source(path)
        parts = source.ranges(target_bytes)
        records = [record for part in parts for record in source.read(part)]
    got = [(r.provenance.row, r.provenance.byte, r.text) for r in records]
    assert got == _lines_by_hand(data)
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert sum(part.num_bytes for part in parts) == len(data)


def test_line_numbers_are_right_in_the_middle_of_a_file_of_many_blocks(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    texts = [f"{number} " + "x" * (number * 7919 % 30_000) for number in range(400)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert path.stat().st_size > 3 * blocks_module.BLOCK_BYTES
    source = open_source(path)
    parts = source.ranges(500_000)
    assert len(parts) > 8
    for part in parts:
        record = next(source.read(part))
        assert record.text == texts[part.row] and record.provenance.row == part.row


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_it_resumes_at_every_record(
    tmp_path: Path,
    suffix: str,
    write_lines: Writing,
    assert_resumes_everywhere: Callable[..., None],
) -> None:
    values = [{"text": f"document {number}" * (number % 5)} for number in range(25)]
    source = open_source(write_lines(tmp_path / f"a{suffix}", values))
    assert_resumes_everywhere(source, 200)


def test_gzip_zstd_and_plain_give_equal_records(
    tmp_path: Path, write_lines: Writing, read_all: Reading
) -> None:
    values = [{"text": "wörter " * (n % 900), "id": f"d{n}"} for n in range(1500)]
    plain, gz, zst = (
        [(r.text, r.provenance.row, r.provenance.byte, r.provenance.id) for r in read_all(source)]
        for source in (
            open_source(write_lines(tmp_path / f"a{suffix}", values), max_ratio=1e6)
            for suffix in (".jsonl", ".jsonl.gz", ".jsonl.zst")
        )
    )
    assert plain == gz == zst
    assert [text for text, *_ in plain] == [value["text"] for value in values]


def test_ranges_and_sources_travel_by_pickle(
    tmp_path: Path, write_lines: Writing, read_all: Reading
) -> None:
    source = open_source(write_lines(tmp_path / "a.jsonl", [{"text": "a"}, {"text": "b"}]))
    parts = source.ranges(1)
    assert len(parts) == 2
    assert pickle.loads(pickle.dumps(parts)) == parts
    copy: TextSource = pickle.loads(pickle.dumps(source))
    assert [record.text for part in parts for record in copy.read(part)] == ["a", "b"]


def test_whole_objects_are_handed_over_for_chats(
    tmp_path: Path, write_lines: Writing, read_all: Reading
) -> None:
    value = {"messages": [{"role": "user", "content": None}], "id": 7}
    [record] = read_all(open_source(write_lines(tmp_path / "a.jsonl", [value]), text_key=None))
    assert record.value == value and record.text is None
    assert record.provenance.id == "7"


TWICE = [
    (b'{"text": "a", "text": "b"}', "text"),
    (b'{"text": "a", "\\u0074ext": "b"}', "text"),
    (b'{"text": "a", "id": 1, "id": 2}', "id"),
    (b'{"text": "a", "id": null, "id": 2}', "id"),
    (b'{"text": "a\\": b", "id": 1 , "id" : 2}', "id"),
]


@pytest.mark.parametrize(("line", "key"), TWICE)
@pytest.mark.parametrize("text_key", ["text", None])
def test_a_key_twice_is_refused_and_not_one_of_them_taken(
    tmp_path: Path, line: bytes, key: str, text_key: str | None
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "x"}\n' + line)
    source = open_source(path, text_key=text_key)
    message = rf"a\.jsonl:2: a key twice in one object at byte 14 \(.*got '{key}' twice\)"
    with pytest.raises(InputError, match=message):
        list(source.read(source.ranges(1 << 40)[0]))
    if text_key:
        with pytest.raises(InputError, match=message):
            list(source.columns(source.ranges(1 << 40)[0]) or [])
    skipping = open_source(path, on_bad="skip")
    reader = skipping.read(skipping.ranges(1 << 40)[0])
    assert len(list(reader)) == 1
    assert reader.skipped.reasons == {"a key twice in one object": 1}


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, 2**70, -(2**63) - 1, -(10**40)])
def test_integers_of_whole_objects_are_kept_to_the_digit(tmp_path: Path, number: int) -> None:
    value = {"prompt": "q", "answer": {"is": [number, 1.5e30, "12345678901234567890"]}}
    (tmp_path / "a.jsonl").write_text(json.dumps(value) + "\n")
    source = open_source(str(tmp_path / "a.jsonl"), text_key=None)
    (record,) = (item for part in source.ranges(100) for item in source.read(part))
    assert json.dumps(record.value) == json.dumps(value)


def test_a_line_that_only_one_parser_can_read_for_its_depth_is_bad(tmp_path: Path) -> None:
    deep = "[" * 1000 + "]" * 1000
    lines = [f'{{"text": "\\": ", "x": {deep}}}', f'{{"text": "{"9" * 20}", "x": {deep}}}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    for key, fine in (("text", 1), (None, 0)):
        source = open_source(str(tmp_path / "a.jsonl"), text_key=key, on_bad="skip")
        reader = [source.read(part) for part in source.ranges(10_000)]
        assert sum(len(list(items)) for items in reader) == fine
        reasons = [items.skipped.reasons for items in reader]
        assert reasons == [{"broken JSON (nested too deeply)": 2 - fine}]


def test_keys_twice_where_nobody_looks_are_no_fault_and_in_a_chat_they_are(
    tmp_path: Path, read_all: Reading
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a", "n": 1, "n": 2, "m": {"text": 1, "text": 2}}')
    assert [record.text for record in read_all(open_source(path))] == ["a"]
    path.write_bytes(b'{"messages": [{"role": "user", "role": "assistant", "content": "x"}]}')
    with pytest.raises(InputError, match="got 'role' twice"):
        read_all(open_source(path, text_key=None))


clean_values: st.SearchStrategy[Any] = st.recursive(
    st.integers(-(2**53), 2**53) | st.text('":\\ax', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('":\\ a', max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text('":\\ a', max_size=4), clean_values, max_size=4))
def test_no_object_with_each_key_once_is_refused(value: dict[str, Any]) -> None:
    item = parse_line(json.dumps(value).encode(), Provenance(), ReadOptions(text_key=None))
    assert isinstance(item, Record) and item.value == value


def lines_run(call: Callable[[], object]) -> int:
    """Return how many lines of Python a call runs."""
    count = 0

    def trace(frame: object, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n"])
@pytest.mark.parametrize("way", ["columns", "columns without a kernel", "records"])
def test_blank_lines_cost_next_to_nothing(
    tmp_path: Path, blank: bytes, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    num_blank = 20_000
    path.write_bytes(b'{"text": "first"}\n' + blank * num_blank + b'{"text": "last"}\n')
    if way == "columns without a kernel":
        monkeypatch.setenv("TOKENREEL_NATIVE", "0")
        native.extension.cache_clear()
    source = open_source(path)
    [part] = source.ranges(1 << 40)
    rows: list[int | None] = []

    def read() -> None:
        if way == "records":
            rows.extend(record.provenance.row for record in source.read(part))
        else:
            rows.extend(row for columns in source.columns(part) or [] for row in columns.rows)

    try:
        spent = lines_run(read)
    finally:
        monkeypatch.undo()
        native.extension.cache_clear()
    assert rows == [0, num_blank + 1]
    # One by one they cost a loop of four lines, and side by side nothing at all.
    assert spent < (5 * num_blank if way == "records" else num_blank / 10)


def test_a_missing_key_names_the_keys_that_are_there(
    tmp_path: Path, write_lines: Writing, read_all: Reading
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"text": "x"}, {"body": "y", "url": "z"}])
    with pytest.raises(InputError) as caught:
        read_all(open_source(path))
    assert str(caught.value) == (
        "a.jsonl:2: missing key at byte 14 (expected 'text', got the keys 'body', 'url'); "
        'name the key of the text with text_key, or pass on_bad="skip" to count it and go on; '
        "chats are built with chat=True"
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [(b'{"text": 3}', "'text' is not a string"), (b'["text"]', "not an object")],
)
def test_a_value_of_the_wrong_type_is_refused(
    tmp_path: Path, line: bytes, reason: str, read_all: Reading
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(line)
    with pytest.raises(InputError, match=reason):
        read_all(open_source(path))


def test_a_file_that_changed_after_planning_is_refused(
    tmp_path: Path, write_lines: Writing
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"text": "x"}])
    source = open_source(path)
    [part] = source.ranges(100)
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(InputError, match=r"changed after the work was divided \(expected 14 bytes"):
        list(source.read(part))


def test_an_empty_file_has_no_ranges_and_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    assert open_source(tmp_path / "a.jsonl").ranges(10) == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\r", b"\n")), max_size=8),
    st.integers(1, 6),
)
def test_lines_do_not_depend_on_blocks_and_long_ones_are_only_announced(
    blocks: list[bytes], limit: int
) -> None:
    data = b"".join(blocks)
    expected, byte = [], 0
    for number, line in enumerate(data.split(b"\n")):
        if line.strip() or len(line) > limit:
            expected.append((byte, number, line if len(line) <= limit else None))
        byte += len(line) + 1
    got = list(split_lines((block for block in blocks if block), start=0, limit=limit))
    assert got == expected


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300).map(lambda b: b.replace(b"\r", b"\n")), st.integers(1, 100))
def test_cuts_follow_newlines_and_count_the_lines_before(data: bytes, target_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(data)
        cuts = cut_between_lines(path, index_lines(path), target_bytes)
    assert cuts[0] == (0, 0)
    for (before, _), (byte, row) in pairwise(cuts):
        assert data[byte - 1 : byte] == b"\n" and byte < len(data)
        assert byte - before >= target_bytes
        assert row == data[:byte].count(b"\n")
