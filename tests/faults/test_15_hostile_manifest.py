"""Fault 15: a manifest with duplicate keys, NaN, unknown fields, deep nesting, or over 16 MB."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.building import build
from tests.store.independent import canonical, edit_manifest

from tokenreel import open_store
from tokenreel.canonical import MAX_JSON_BYTES
from tokenreel.errors import FormatError
from tokenreel.inspect.verify import verify_store


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return build(tmp_path / "books")


def rewrite(books: Path, change: Callable[[bytes], bytes]) -> None:
    file = books / "manifest.json"
    file.write_bytes(change(file.read_bytes()))


def refused(books: Path) -> FormatError:
    with pytest.raises(FormatError) as caught:
        open_store(books)
    assert caught.value.where == str(books / "manifest.json")
    assert not verify_store(books).ok
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (b'"version":1', b'"version":1,"version":1', "version"),
        (b'{"facts"', b'{"facts":{},"facts"', "facts"),
        (b'"vocab_size":1000', b'"vocab_size":1,"vocab_size":1000', "vocab_size"),
        (b'"splits":{', b'"splits":{"val":[],', "val"),
    ],
)
def test_a_key_that_occurs_twice_is_named(books: Path, old: bytes, new: bytes, key: str) -> None:
    rewrite(books, lambda data: data.replace(old, new, 1))
    assert refused(books).what == f"key {key!r} occurs twice"


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_numbers_that_are_none_are_named(books: Path, number: bytes) -> None:
    rewrite(books, lambda data: data.replace(b"1000", number))
    assert refused(books).what == f"{number.decode()} is not a number"


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 5000, b"1e3", b"1000.0"])
def test_numbers_in_another_spelling_or_size_are_errors(books: Path, number: bytes) -> None:
    rewrite(books, lambda data: data.replace(b"1000", number))
    refused(books)


@pytest.mark.parametrize(
    "add",
    [
        lambda m: m.update(extra=1),
        lambda m: m["facts"].update(extra=1),
        lambda m: m["splits"]["train"][0].update(extra=1),
        lambda m: m["splits"]["train"][0].update(__class__="x"),
    ],
)
def test_an_unknown_field_is_named(books: Path, add: Callable[[dict[str, Any]], None]) -> None:
    edit_manifest(books, add)
    assert "unknown ['" in refused(books).what


def test_each_missing_field_is_named(books: Path) -> None:
    whole = (books / "manifest.json").read_bytes()
    names = {"format", "version", "facts", "splits"}
    entry_names = {"path", "tokens", "documents", "continues", "docs_sha256", "record_sha256"}
    fact_names = {"dtype", "vocab_size", "block_bytes", "tokenizer", "build", "turns", "weights"}
    removals: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        *((name, lambda m, name=name: m["facts"].pop(name)) for name in fact_names),
        *((name, lambda m, name=name: m["splits"]["train"][0].pop(name)) for name in entry_names),
    ]
    for name, remove in removals:
        edit_manifest(books, remove)
        assert f"missing ['{name}']" in refused(books).what
        (books / "manifest.json").write_bytes(whole)
    for name in names:
        manifest = json.loads(whole)
        del manifest[name]
        (books / "manifest.json").write_bytes(canonical(manifest))
        assert f"missing ['{name}']" in refused(books).what
    (books / "manifest.json").write_bytes(whole)


@pytest.mark.parametrize("depth", [500, 900, 950, 980, 1000, 5000, 100_000, 2_000_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_nesting_is_an_error(books: Path, depth: int, opening: bytes, closing: bytes) -> None:
    nested = opening * depth + b"1" + closing * depth
    rewrite(books, lambda data: data.replace(b'"build":{}', b'"build":{"a":' + nested + b"}"))
    refused(books)


def test_a_manifest_of_more_than_16_mb_is_not_read(books: Path) -> None:
    with (books / "manifest.json").open("r+b") as file:
        file.truncate(64 * 2**30)  # sparse: 64 GB of zeros that take no room
    tracemalloc.start()
    try:
        error = refused(books)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.what == "file is too large"
    assert error.expected == f"<= {MAX_JSON_BYTES:,} bytes"
    assert peak < 2 * 1024 * 1024


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\n", b"{", b"[]\n", b"null\n", b'"x"\n', b"1\n", b"{}\n", b"\0" * 100),
        *(b"\xff\xfe{}", b"\xef\xbb\xbf{}\n", b'{"a":"\xff"}\n'),
        *(b'{"a":"\\ud800"}\n', b'{"\\ud800":1}\n'),
    ],
)
def test_what_is_no_manifest_at_all_is_an_error(books: Path, content: bytes) -> None:
    rewrite(books, lambda _: content)
    refused(books)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b",", b", "),
        (b'"format"', b'"f\\u006frmat"'),
        (b"\n", b"\r\n"),
        (b"\n", b""),
        (b"\n", b"\n\n"),
    ],
)
def test_another_spelling_of_the_same_content_is_an_error(
    books: Path, old: bytes, new: bytes
) -> None:
    rewrite(books, lambda data: data.replace(old, new, 1))
    assert "canonical spelling" in refused(books).what


def test_a_manifest_that_is_no_regular_file_is_not_opened(books: Path) -> None:
    for make in (
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("/dev/zero"),
        Path.mkdir,
    ):
        file = books / "manifest.json"
        if file.is_file():
            file.unlink()
        make(file)
        assert refused(books).what == "not a regular file"
        if file.is_dir():
            file.rmdir()
        else:
            file.unlink()


@pytest.mark.parametrize("splits", [{}, {"train": []}, [], None, {"..": []}, {"a/b": []}, {"": []}])
def test_splits_that_are_none_are_errors(books: Path, splits: object) -> None:
    manifest = json.loads((books / "manifest.json").read_bytes())
    manifest["splits"] = splits
    (books / "manifest.json").write_bytes(canonical(manifest))
    refused(books)
