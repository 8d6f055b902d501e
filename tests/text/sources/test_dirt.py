"""Ordinary dirt: marks are removed, NUL is kept, both are told, in every kind of source."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tokenreel.text.sources import InMemory, Record, open_source
from tokenreel.text.sources.dirt import KEPT_NUL, REMOVED_MARK, clean, fault_in

Reading = Callable[..., list[Record]]
MARK = "\ufeff"
# What is given, what is read, and the dirt that is told.
TEXTS = [
    ("clean", "clean", ()),
    (f"{MARK}mark", "mark", (REMOVED_MARK,)),
    (f"{MARK}{MARK}two marks", "two marks", (REMOVED_MARK,)),
    (f"in{MARK}side", f"in{MARK}side", ()),
    ("nul \0 inside", "nul \0 inside", (KEPT_NUL,)),
    (f"{MARK}both\0", "both\0", (REMOVED_MARK, KEPT_NUL)),
]
GIVEN = [given for given, _, _ in TEXTS]
EXPECTED = [(text, dirt) for _, text, dirt in TEXTS]


def found(records: list[Record]) -> list[tuple[str | None, tuple[str, ...]]]:
    return [(record.text, record.dirt) for record in records]


def test_jsonl_parquet_text_files_and_memory_give_the_same(
    tmp_path: Path, read_all: Reading
) -> None:
    rows = [{"text": text} for text in GIVEN]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for number, text in enumerate(GIVEN):
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
    for name in ("a.jsonl", "a.jsonl.gz", "a.parquet", "*.txt"):
        assert found(read_all(open_source(str(tmp_path / name)))) == EXPECTED, name
    assert found(read_all(InMemory(GIVEN))) == found(read_all(InMemory(rows))) == EXPECTED


@pytest.mark.parametrize("line", [b'{"text": "one"}', b'\xef\xbb\xbf{"text": "\\ufeffone"}'])
def test_a_mark_in_front_of_a_line_is_removed_and_told_once(
    tmp_path: Path, line: bytes, read_all: Reading
) -> None:
    path = tmp_path / "joined.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line.removeprefix(b"\xef\xbb\xbf") + b"\n" + line + b"\n")
    first, second = read_all(open_source(path))
    assert (first.text, first.dirt, first.provenance.byte) == ("one", (REMOVED_MARK,), 0)
    is_marked = line.startswith(b"\xef")
    assert second.dirt == ((REMOVED_MARK,) if is_marked else ())
    assert second.provenance.byte == path.read_bytes().index(b"\n") + 1


def test_a_broken_line_behind_a_mark_is_refused_at_its_own_byte(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a\xff"}')
    source = open_source(tmp_path / "a.jsonl", on_bad="skip")
    reader = source.read(source.ranges(1)[0])
    assert list(reader) == [] and reader.skipped.places[0]["byte"] == 14


def test_the_contents_of_chats_are_cleaned_and_their_keys_are_not(read_all: Reading) -> None:
    chat = {"messages": [{"role": "user", "content": f"{MARK}hi\0"}], f"{MARK}key": f"{MARK}x"}
    [record] = read_all(open_source(iter([chat]), text_key=None))
    cleaned = {"messages": [{"role": "user", "content": "hi\0"}], f"{MARK}key": "x"}
    assert record.value == cleaned and record.dirt == (REMOVED_MARK, KEPT_NUL)
    assert chat["messages"] == [{"role": "user", "content": f"{MARK}hi\0"}]  # the user's own


def test_a_text_is_refused_only_when_a_quarter_of_it_is_nul() -> None:
    assert fault_in("\0" * 15) is None
    assert fault_in("\0" * 16 + "x" * 48) == ("text full of NUL", 0)
    assert fault_in("\0" * 16 + "x" * 49) is None
    assert clean("\0" * 15) == ("\0" * 15, (KEPT_NUL,))
