"""Fault 14: wrong dtype, byte order, version, magic: no guess."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.store.building import build
from tests.store.independent import (
    canonical,
    edit_manifest,
    fingerprint,
    manifest_digest,
    read_manifest,
    seal,
)

from tokenreel import open_store
from tokenreel.errors import ConfigError, FormatError
from tokenreel.inspect.verify import verify_store
from tokenreel.store.shard_record import read_record


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return build(tmp_path / "books")


@pytest.mark.parametrize(
    "dtype",
    [
        *("<u2", ">u2", "uint16-be", "u2", "uint8", "int16", "int32", "uint64", "float32"),
        *("object", "UINT16", "uint16 ", "", None, 2, ["uint16"]),
    ],
)
def test_a_dtype_that_is_not_in_the_format_is_refused(books: Path, dtype: object) -> None:
    edit_manifest(books, lambda m: m["facts"].update(dtype=dtype))
    with pytest.raises(FormatError, match=r"wrong value of facts\.dtype") as caught:
        open_store(books)
    assert caught.value.expected == "one of ['uint16', 'uint32']"
    assert not verify_store(books).ok


def test_the_other_dtype_does_not_fit_the_files(books: Path) -> None:
    edit_manifest(books, lambda m: m["facts"].update(dtype="uint32"))
    with pytest.raises(Exception, match="the file has the wrong size"):
        open_store(books)


@pytest.mark.parametrize("version", [0, 2, -1, 1.0, True, "1", None, [1], 2**70])
def test_another_version_is_refused(books: Path, version: object) -> None:
    edit_manifest(books, lambda m: m.update(version=version))
    with pytest.raises(FormatError) as caught:
        open_store(books)
    assert caught.value.what == "unknown format version"
    assert caught.value.remedy == "use a tokenreel that knows this version"


@pytest.mark.parametrize("magic", ["tokenreel-shard", "Tokenreel", "", None, 1, "megatron"])
def test_another_magic_is_refused(books: Path, magic: object) -> None:
    edit_manifest(books, lambda m: m.update(format=magic))
    with pytest.raises(FormatError) as caught:
        open_store(books)
    assert caught.value.what == "wrong format"
    assert caught.value.expected == "'tokenreel'"


def test_a_manifest_in_the_place_of_a_record_is_refused(books: Path) -> None:
    record = books / "train/shard_00000.json"
    raw = json.loads(record.read_bytes())
    record.write_bytes(canonical(raw | {"format": "tokenreel"}))
    with pytest.raises(FormatError, match="wrong format"):
        read_record(record)
    record.write_bytes(canonical(raw | {"version": 2}))
    with pytest.raises(FormatError, match="unknown format version"):
        read_record(record)


def test_a_vocabulary_larger_than_the_dtype_is_refused(books: Path) -> None:
    edit_manifest(books, lambda m: m["facts"].update(vocab_size=2**16 + 1))
    with pytest.raises(FormatError, match=r"facts\.vocab_size") as caught:
        open_store(books)
    assert caught.value.expected == "<= 65,536 for uint16"


def test_ids_outside_the_declared_vocabulary_are_found_by_verify(books: Path) -> None:
    edit_manifest(books, lambda m: m["facts"].update(vocab_size=20))
    seal(books)
    problems = verify_store(books).problems
    assert any("outside the vocabulary" in problem.what for problem in problems)


@pytest.mark.parametrize(
    ("declared", "name"), [({"dtype": "uint32"}, "dtype"), ({"vocab_size": 7}, "vocab_size")]
)
def test_a_caller_who_declares_something_else_is_told(
    books: Path, declared: dict[str, Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=f"the store declares another {name}"):
        open_store(books, **declared)
    open_store(books, dtype="uint16", vocab_size=1000)


def test_a_manifest_that_was_edited_by_hand_is_told_from_its_fingerprint(books: Path) -> None:
    manifest = read_manifest(books)
    manifest["facts"]["build"] = {"note": "edited"}
    actual = {"sha256": manifest_digest(manifest), "fingerprint": fingerprint(manifest)}
    for name in ("sha256", "fingerprint"):
        (books / "manifest.json").write_bytes(canonical(manifest))
        with pytest.raises(FormatError) as caught:
            open_store(books)
        assert str(caught.value) == (
            f"{books / 'manifest.json'}: the manifest does not match its {name}, so it was "
            f"damaged or edited (expected {manifest[name]}, got {actual[name]}); "
            'run "tokenreel verify --repair", or restore the file'
        )
        manifest["sha256"] = manifest_digest(manifest)  # whoever forges one may forge the other


def test_weights_of_an_unknown_dtype_are_refused(books: Path) -> None:
    edit_manifest(books, lambda m: m["facts"].update(weights="float64"))
    with pytest.raises(FormatError, match=r"facts\.weights"):
        open_store(books)
