"""Fault 19: invalid UTF-8, lone surrogates, a text full of NUL.

An error with line and byte offset; skipped only on request, and then counted. A byte order mark
in front and a NUL here and there are no faults: tests/text/sources/test_dirt.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenreel.errors import InputError
from tokenreel.text.sources import Reader, open_source

GOOD = b'{"text": "fine"}\n'

IN_JSONL = [
    ("invalid UTF-8", b'{"text": "a\xffb"}', 11, "got ff 62 22 7d"),
    ("invalid UTF-8", '{"text": "ää'.encode() + b"\xc3", 14, "got c3"),
    ("lone surrogate", b'{"text": "a\\ud800"}', 11, "ud800"),
    ("lone surrogate", b'{"text": "a\\udc00\\ud800"}', 11, "udc00"),
    ("lone surrogate", b'{"text": "\xed\xa0\x80"}', 10, "got ed a0 80"),
    ("text full of NUL", b'{"text": "' + b"h\\u0000" * 16 + b'"}', 0, "at character 1"),
]


def read(path: Path, **settings: Any) -> Reader:
    source = open_source(path, **settings)
    return source.read(source.ranges(1 << 40)[0])


@pytest.mark.parametrize(("reason", "line", "byte", "shown"), IN_JSONL)
@pytest.mark.parametrize("text_key", ["text", None])
def test_jsonl_names_line_and_byte(
    tmp_path: Path, reason: str, line: bytes, byte: int, shown: str, text_key: str | None
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"\n" + line + b"\n" + GOOD)
    reader = read(path, text_key=text_key)
    next(reader)
    before = reader.cursor
    with pytest.raises(InputError) as caught:
        next(reader)
    at = len(GOOD) + 1 + byte
    assert str(caught.value).startswith(f"a.jsonl:3: {reason} at byte {at}")
    assert shown in str(caught.value) and 'on_bad="skip"' in str(caught.value)
    assert reader.cursor == before
    with pytest.raises(InputError):  # asking again does not pass over it
        next(reader)


@pytest.mark.parametrize(("reason", "line", "byte", "shown"), IN_JSONL)
def test_jsonl_skips_on_request_and_counts(
    tmp_path: Path, reason: str, line: bytes, byte: int, shown: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + line + b"\n" + GOOD)
    reader = read(path, on_bad="skip")
    assert [record.provenance.line for record in reader] == [1, 3]
    place = {"reason": reason, "file": "a.jsonl", "row": 1, "byte": len(GOOD) + byte}
    assert reader.skipped.as_dict() == {"count": 1, "reasons": {reason: 1}, "places": [place]}


@pytest.mark.parametrize(
    ("reason", "data", "line", "byte"),
    [
        ("invalid UTF-8", b"one\ntw\xe4 \n", 2, 6),
        ("invalid UTF-8", b"one\ntwo\n\xc3", 3, 8),
        ("invalid UTF-8", "one\n".encode("utf-16"), 1, 0),
        ("invalid UTF-8", b"\xed\xa0\x80", 1, 0),
    ],
)
def test_text_files_name_line_and_byte(
    tmp_path: Path, reason: str, data: bytes, line: int, byte: int
) -> None:
    (tmp_path / "a.md").write_bytes(b"good")
    (tmp_path / "b.md").write_bytes(data)
    with pytest.raises(InputError, match=rf"b\.md:{line}: {reason} at byte {byte} \(got"):
        list(read(tmp_path))
    reader = read(tmp_path, on_bad="skip")
    assert [record.text for record in reader] == ["good"]
    assert reader.skipped.places == [
        {"reason": reason, "file": "b.md", "row": line - 1, "byte": byte}
    ]


def test_utf16_without_a_mark_is_refused_though_it_is_valid_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("A page of text.\n".encode("utf-16-le"))
    with pytest.raises(InputError, match=r"a\.txt: text full of NUL \(got .*convert it to UTF-8"):
        list(read(tmp_path / "a.txt"))


def test_what_only_looks_wrong_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(rb'{"text": "\\u0000 \ud83d\ude00 in\ufeffside \ufffd"}')
    [record] = read(path)
    assert record.text == "\\u0000 😀 in\ufeffside \ufffd"


def test_the_account_of_a_million_faults_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\n" * 5000)
    reader = read(path, on_bad="skip")
    assert list(reader) == []
    assert reader.skipped.count == 5000 and len(reader.skipped.places) == 100
