"""Fault 13: a declared count of 2⁶³, nothing is allocated."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.building import build, build_full
from tests.store.independent import edit_manifest

from tokenreel import open_store
from tokenreel.errors import StoreError
from tokenreel.inspect.verify import verify_store

COUNTS = ("tokens", "documents", "turns", "strings_bytes")


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("count", [2**31, 2**32, 2**53, 2**56, 2**56 + 1, 2**63 - 1, 2**63, 2**64])
def test_a_huge_count_is_an_error_and_allocates_nothing(
    tmp_path: Path, name: str, count: int
) -> None:
    path = build_full(tmp_path / "books")
    edit_manifest(path, lambda m: m["splits"]["train"][0].update({name: count}))

    def refuse() -> None:
        with pytest.raises(StoreError) as caught:
            open_store(path)
        if count > 2**56:
            assert f"splits.train[0].{name}" in str(caught.value)
            assert "an integer from 0 to 2**56" in str(caught.value)
        else:
            assert "the file has the wrong size" in str(caught.value)

    assert peak_bytes(refuse) < 1024 * 1024
    assert not verify_store(path, threads=1).ok  # warms up what verify itself needs
    assert peak_bytes(lambda: verify_store(path, threads=1)) < 1024 * 1024


@pytest.mark.parametrize("name", ["vocab_size", "block_bytes", "shard_bytes"])
@pytest.mark.parametrize("value", [2**63, 2**80, 0, -1, True, 1.0, "8", None])
def test_facts_that_are_no_counts_are_errors(tmp_path: Path, name: str, value: object) -> None:
    path = build(tmp_path / "books")
    edit_manifest(path, lambda m: m["facts"].update({name: value}))
    with pytest.raises(StoreError, match=rf"facts\.{name}"):
        open_store(path)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [-1, True, 3.0, "3", None, [], {}])
def test_counts_that_are_no_counts_are_errors(tmp_path: Path, name: str, value: object) -> None:
    path = build(tmp_path / "books")
    edit_manifest(path, lambda m: m["splits"]["train"][0].update({name: value}))
    with pytest.raises(StoreError, match=rf"splits\.train\[0\]\.{name}"):
        open_store(path)


def test_a_huge_number_of_shards_of_the_same_file_is_an_error(tmp_path: Path) -> None:
    path = build(tmp_path / "books")

    def repeat(manifest: dict[str, Any]) -> None:
        manifest["splits"]["val"] *= 20_000

    edit_manifest(path, repeat)
    with pytest.raises(StoreError, match="two shards have the same path"):
        open_store(path)
