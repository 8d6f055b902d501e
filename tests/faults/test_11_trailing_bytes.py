"""Fault 11: trailing bytes, holes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.store.building import build, build_full
from tests.store.independent import canonical, edit_manifest, read_manifest, seal

from tokenreel import open_store
from tokenreel.errors import DamageError, FormatError, StoreError
from tokenreel.inspect.verify import verify_store


def test_bytes_behind_the_end_of_any_file_are_named_at_open(memory_disk: Path) -> None:
    path = build_full(memory_disk / "books")
    for file in sorted(path.glob("*/*.*")):
        if file.suffix == ".json":
            continue
        whole = file.read_bytes()
        for tail in (b"\0", b"\0\0", bytes(8), bytes(24)):
            file.write_bytes(whole + tail)
            with pytest.raises(DamageError, match="the file has the wrong size") as caught:
                open_store(path)
            assert caught.value.where == str(file)
            assert caught.value.actual == f"{len(whole) + len(tail):,} bytes"
            assert not verify_store(path).ok
        file.write_bytes(whole)
    open_store(path)


def test_bytes_behind_the_manifest_are_an_error(tmp_path: Path) -> None:
    path = build(tmp_path / "books")
    whole = (path / "manifest.json").read_bytes()
    for tail in (b"\n", b" ", b"\0", b"{}", whole):
        (path / "manifest.json").write_bytes(whole + tail)
        with pytest.raises(FormatError):
            open_store(path)


def test_bytes_behind_a_record_are_found_by_verify(tmp_path: Path) -> None:
    path = build(tmp_path / "books")
    with (path / "train/shard_00000.json").open("ab") as file:
        file.write(b"\n")
    assert verify_store(path).problems[0].where == str(path / "train/shard_00000.json")


def test_tokens_that_no_document_has_are_an_error(tmp_path: Path) -> None:
    # One more token than the index knows, everything else consistent: a hole at the end.
    path = build(tmp_path / "books")
    with (path / "train/shard_00000.bin").open("ab") as file:
        file.write(np.array([1], "<u2").tobytes())
    seal(path)
    with pytest.raises(DamageError, match="the document index does not cover the shard") as caught:
        open_store(path)
    assert caught.value.expected == "0 to 10"
    assert caught.value.actual == "0 to 9"


def test_tokens_before_the_first_document_are_an_error(tmp_path: Path) -> None:
    path = build(tmp_path / "books")
    docs = path / "train/shard_00000.docs"
    offsets = np.fromfile(docs, "<u8")
    offsets[0] = 1
    docs.write_bytes(offsets.tobytes())
    seal(path)
    with pytest.raises(DamageError, match="the document index does not cover the shard"):
        open_store(path)


def test_a_shard_that_is_missing_from_a_straddling_document_is_an_error(tmp_path: Path) -> None:
    path = build(tmp_path / "books")
    entries = read_manifest(path)["splits"]["train"]
    number = next(i for i, entry in enumerate(entries) if entry["continues"])
    edit_manifest(path, lambda m: m["splits"].update(train=entries[: number + 1]))
    with pytest.raises(FormatError, match=rf"splits\.train\[{number}\]\.continues"):
        open_store(path)


def test_files_of_another_store_in_the_place_of_ours_are_found(tmp_path: Path) -> None:
    # Same sizes, same index, valid records: only the manifest knows better.
    ours = build(tmp_path / "ours", {"train": [[1, 2, 3]]})
    theirs = build(tmp_path / "theirs", {"train": [[4, 5, 6]]})
    shutil.rmtree(ours / "train")
    shutil.copytree(theirs / "train", ours / "train")
    problem = verify_store(ours).problems[0]
    assert "the record of the shard fails its checksum" in problem.what
    (ours / "train/shard_00000.json").write_bytes(canonical({}))
    assert not verify_store(ours).ok


def test_shards_in_another_order_are_found(tmp_path: Path) -> None:
    path = build(tmp_path / "books", {"train": [[1] * 12, [2] * 12]})
    before = open_store(path).fingerprint

    def swap(manifest: dict) -> None:
        first, second = manifest["splits"]["train"]
        first["path"], second["path"] = second["path"], first["path"]

    edit_manifest(path, swap)
    try:
        assert open_store(path).fingerprint == before
    except StoreError:
        return
    assert not verify_store(path).ok
