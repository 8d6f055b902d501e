"""Documents side by side are those that are read one by one, for any bytes in a file."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenreel import native
from tokenreel.errors import InputError
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources import TextSource, open_source
from tokenreel.text.sources.chain import Chained
from tokenreel.text.sources.jsonl_columns import FOUND, LINE_BYTES, WINDOW_BYTES
from tokenreel.text.sources.record import Skipped

Found = tuple[list[tuple[str, Provenance]], dict[str, int], list[dict[str, Any]]]

# Lines that a careless scanner would take, or take for something else.
HOSTILE = [
    b'{"text": "a", "text": "b"}',
    b'{"text": "a", "\\u0074ext": "b"}',
    b'{"te\\u0078t": "a"}',
    b'{"other": {"text": "inner"}, "text": "outer"}',
    b'{"other": {"text": "inner"}}',
    b'{"text": "a" "id": "b"}',
    b'{"text": "a",}',
    b'{"text": "a"} x',
    b'{"text": "a"}{"text": "b"}',
    b'[{"text": "a"}]',
    b'{"text": "tab\tinside"}',
    b'{"text": "nul \\u0000"}',
    b'{"text": "nul \\\\u0000"}',
    b'{"other": "nul \\u0000", "text": "a"}',
    b'{"text": "\\ufeffmark"}',
    b'{"text": "\xef\xbb\xbfmark"}',
    b'{"text": "mark inside \xef\xbb\xbf"}',
    b'\xef\xbb\xbf{"text": "a"}',
    b'\xef\xbb\xbf{"text": "\\ufeff\xef\xbb\xbfa\\u0000"}',
    b"\xef\xbb\xbf",
    b'{"text": "' + b"h\\u0000" * 20 + b'"}',
    b'{"text": "\\ud800"}',
    b'{"text": "\\udc00\\ud800"}',
    b'{"text": "\\ud83d\\ude00 \\uD83D\\uDE00"}',
    b'{"text": "\\ud83d\\u0041"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "\xc0\xaf"}',
    b'{"text": "\xf4\x90\x80\x80"}',
    b'{"text": "\xf0\x8f\xbf\xbf"}',
    b'{"text": "\xe2\x82"}',
    b'{"text": "\xf0\x9f\x98\x80 \xe6\x97\xa5 \xc3\xa9"}',
    b'{"text": "bad escape \\x"}',
    b'{"text": "all \\" \\\\ \\/ \\b \\f \\n \\r \\t"}',
    b'{"text": "short \\u12"}',
    b'{"text": "never ends',
    b'{"text": "ends in a backslash\\',
    b'{"text": null}',
    b'{"text": 5}',
    b"{}",
    b'{ "text" : "blanks" , "id" : 7 }\r',
    b'\t{"text": "a"}',
    b'{"text": "a", "id": "name"}',
    b'{"id": "\\u00e9\\n", "text": "a"}',
    b'{"text": "a", "id": null, "id": 5}',
    b'{"text": "a", "id": 5, "id": null}',
    b'{"text": "a", "id": null, "id": null}',
    b'{"text": "a", "n": 1, "n": 2}',
    b"",
    b" \t\r",
    b"\x0b",
    b"                                    ",
    b'{"text": "a", "id": -0}',
    b'{"text": "a", "id": -12}',
    b'{"text": "a", "id": 007}',
    b'{"text": "a", "id": 1.5}',
    b'{"text": "a", "id": 1e3}',
    b'{"text": "a", "id": true}',
    b'{"text": "a", "id": 123456789012345678901234567890}',
    b'{"text": "a", "id": ["x"]}',
    b'{"text": "a", "n": [1, -0, 0.5, -0.0, 1e5, 1E-5, 12.]}',
    b'{"text": "a", "n": [1, -0, 0.5, {"a": [], "b": {}}, true, false, null]}',
    b'{"text": "a", "n": nan}',
    b'{"text": "a", "n": truex}',
    b'{"text": "a", "n": ' + b"[" * 40 + b"]" * 40 + b"}",
    b'{"text": ""}',
    b'{"": "a", "text": "b"}',
    b"   ",
    b"\x0b",
    b"",
    b"\x00",
]
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
objects = st.fixed_dictionaries(
    {"text": st.text(max_size=40)},
    optional={"id": st.text(max_size=5) | st.integers() | st.none(), "more": any_json},
)
spelled = st.builds(
    lambda value, ascii: json.dumps(value, ensure_ascii=ascii).encode("utf-8", "surrogatepass"),
    objects,
    st.booleans(),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A line with one stretch of it replaced."""
    line = draw(spelled | st.sampled_from(HOSTILE))
    start = draw(st.integers(0, len(line)))
    stop = draw(st.integers(start, min(len(line), start + 3)))
    return line[:start] + draw(st.binary(max_size=3)) + line[stop:]


lines = st.lists(spelled | st.sampled_from(HOSTILE) | mutated(), max_size=12)


@pytest.fixture(params=["kernel", "without it"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TOKENREEL_NATIVE", "1" if request.param == "kernel" else "0")
    native.extension.cache_clear()
    yield
    monkeypatch.undo()
    native.extension.cache_clear()


def one_by_one(source: TextSource, target_bytes: int) -> Found:
    documents, skipped = [], Skipped()
    for part in source.ranges(target_bytes):
        reader = source.read(part)
        documents += [(record.text or "", record.provenance) for record in reader]
        skipped.merge(reader.skipped)
    return documents, skipped.reasons, skipped.places


def side_by_side(source: TextSource, target_bytes: int) -> Found:
    documents, skipped = [], Skipped()
    for part in source.ranges(target_bytes):
        reader = source.columns(part)
        assert reader is not None
        for columns in reader:
            texts = [text.decode() for text in columns.texts]
            assert texts
            documents += [(text, columns.provenance(n)) for n, text in enumerate(texts)]
        skipped.merge(reader.skipped)
    return documents, skipped.reasons, skipped.places


def assert_same(source: TextSource, target_bytes: int = 1 << 40) -> None:
    assert side_by_side(source, target_bytes) == one_by_one(source, target_bytes)


@pytest.mark.usefixtures("kernel")
@settings(max_examples=150, deadline=None)
@given(
    found=lines,
    target_bytes=st.integers(1, 200),
    limit=st.sampled_from([20, 1 << 26]),
    id_key=st.sampled_from(["id", "text", "", None]),
)
@example(found=HOSTILE, target_bytes=1 << 20, limit=1 << 26, id_key="id")
def test_any_file_gives_the_same_documents_and_the_same_skips(
    found: list[bytes], target_bytes: int, limit: int, id_key: str | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_bytes(b"\n".join(found))
        options: dict[str, Any] = {"on_bad": "skip", "max_record_bytes": limit, "id_key": id_key}
        assert_same(open_source(path, **options), target_bytes)


@pytest.mark.parametrize("line", HOSTILE)
def test_a_line_is_refused_with_the_same_words(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "good"}\n' + line + b'\n{"text": "also good"}\n')
    source = open_source(path)
    try:
        expected = one_by_one(source, 1 << 40)
    except InputError as error:
        with pytest.raises(InputError) as caught:
            side_by_side(source, 1 << 40)
        assert str(caught.value) == str(error)
    else:
        assert side_by_side(source, 1 << 40) == expected


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_lines_of_all_lengths_across_windows_are_all_there(suffix: str, tmp_path: Path) -> None:
    sizes = [0, 10, 1 << 20, 5, WINDOW_BYTES - 40, 1, WINDOW_BYTES + 7, 3, LINE_BYTES + 99, 20, 30]
    rows = [{"text": chr(97 + n) * size, "id": n} for n, size in enumerate(sizes)]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(gzip.compress(data, 1) if suffix.endswith("gz") else data)
    source = open_source(path)
    assert_same(source)
    assert [len(text) for text, _ in side_by_side(source, 1 << 40)[0]] == sizes
    assert_same(source, WINDOW_BYTES)


def test_more_lines_than_a_call_takes_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    count = 200_000
    path.write_text("".join(f'{{"text":"{n}"}}\n' for n in range(count)))
    documents = side_by_side(open_source(path), 1 << 40)[0]
    assert [text for text, _ in documents] == [str(n) for n in range(count)]
    assert [place.row for _, place in documents] == list(range(count))


def test_a_chain_gives_each_source_by_its_own_options(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text('{"text": "one"}\n')
    second.write_text('{"body": "two"}\n')
    chain = Chained([open_source(first), open_source(second, text_key="body")])
    assert_same(chain)
    assert [text for text, _ in side_by_side(chain, 1 << 40)[0]] == ["one", "two"]


def test_what_has_no_lines_of_text_is_read_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hi")
    (tmp_path / "a.jsonl").write_text("{}\n")
    for source in (
        open_source(tmp_path / "a.txt"),
        open_source(tmp_path / "a.jsonl", text_key=None),
        open_source(iter(["hi"])),
    ):
        assert source.columns(source.ranges(100)[0]) is None


def test_a_file_that_changed_after_the_work_was_divided_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n')
    source = open_source(path)
    part = source.ranges(100)[0]
    path.write_text('{"text": "one more"}\n')
    with pytest.raises(InputError, match="changed after the work was divided"):
        source.columns(part)


def test_the_kernel_takes_ordinary_lines_and_stops_at_the_first_it_is_not_sure_of() -> None:
    extension = native.extension()
    if extension is None:
        pytest.skip("the extension is not built or not wanted")
    good = [
        b'{"text": "plain"}',
        b'{"id": 12, "text": "\\n\\u00e9\\ud83d\\ude00", "meta": {"a": [1, -2.5, true, null]}}\r',
        '{"url":"x","text":"日本 é","id":"name"}'.encode(),
    ]
    data = b"\n".join([*good, b'{"text": 5}', *good])
    out, table = bytearray(len(data)), np.zeros(9, FOUND)
    count, num_lines, stop = extension.scan_lines(data, 0, b"text", b"id", 1 << 20, out, table)
    assert (count, num_lines, data[stop:]) == (3, 3, b"\n".join([b'{"text": 5}', *good]))
    texts = [bytes(out[row["text_start"] : row["text_stop"]]).decode() for row in table[:3]]
    assert texts == ["plain", "\né😀", "日本 é"]
    ids = [bytes(out[row["id_start"] : row["id_stop"]]) for row in table[1:3]]
    assert (ids, table[0]["id_start"]) == ([b"12", b"name"], -1)
    assert table["line_start"][:3].tolist() == [0, len(good[0]) + 1, len(good[0] + good[1]) + 2]


SPELLINGS = [
    "\\n",
    '\\"',
    "\\\\",
    "\\/",
    "\\u0041",
    "\\ud83d\\ude00",
    "é",
    "日本",
    "дом и сад",
    " ",
]


@given(st.lists(st.sampled_from(SPELLINGS) | st.integers(1, 150), max_size=40))
@settings(max_examples=200, deadline=None)
def test_long_texts_are_read_as_json_reads_them_wherever_their_escapes_fall(
    parts: list[str | int],
) -> None:
    extension = native.extension()
    if extension is None:
        pytest.skip("the extension is not built or not wanted")
    spelled = "".join(part if isinstance(part, str) else "x" * part for part in parts)
    data = f'{{"text": "{spelled}"}}'.encode()
    out, table = bytearray(len(data)), np.zeros(1, FOUND)
    assert extension.scan_lines(data, 0, b"text", None, 1 << 20, out, table) == (1, 1, len(data))
    text = bytes(out[table["text_start"][0] : table["text_stop"][0]]).decode()
    assert text == json.loads(data)["text"]


def test_the_kernel_refuses_buffers_that_do_not_fit() -> None:
    extension = native.extension()
    if extension is None:
        pytest.skip("the extension is not built or not wanted")
    for start, room in ((0, 3), (5, 100), (-1, 100)):
        with pytest.raises(ValueError, match="sizes do not fit"):
            extension.scan_lines(b"abcd", start, b"text", None, 9, bytearray(room), bytearray(400))


def test_many_large_files_are_hashed_as_one_after_the_other(tmp_path: Path) -> None:
    for number in range(5):
        text = json.dumps({"text": str(number) * (1 << 20)}) + "\n"
        (tmp_path / f"{number}.jsonl").write_text(text if number % 2 else '{"text": "small"}\n')
    together = open_source(tmp_path).identity()["files"]
    alone = [open_source(tmp_path / f"{n}.jsonl").identity()["files"][0] for n in range(5)]
    assert together == alone
