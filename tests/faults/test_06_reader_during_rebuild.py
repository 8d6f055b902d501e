"""Fault 6: a reader during a rebuild sees one complete version."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.store.building import BOOKS, OTHER_BOOKS, as_lists, build, corpus_of, read_all

from tokenreel import open_store
from tokenreel.errors import DamageError


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_a_store_opened_before_the_rebuild_stays_what_it_was(tmp_path: Path, mode: str) -> None:
    path = build(tmp_path / "books", OTHER_BOOKS)
    opened = open_store(path, mode=mode)  # nothing has been read from it yet
    build(path, BOOKS, replace=True)
    assert corpus_of(opened) == as_lists(OTHER_BOOKS)
    opened.check_sizes()
    assert read_all(path, mode=mode) == as_lists(BOOKS)


def test_what_was_mapped_survives_any_number_of_rebuilds(tmp_path: Path) -> None:
    path = build(tmp_path / "books", OTHER_BOOKS)
    opened = open_store(path)
    assert corpus_of(opened) == as_lists(OTHER_BOOKS)
    for number in range(4):
        build(path, {"train": [[number] * 12] * 3}, replace=True)
    assert corpus_of(opened) == as_lists(OTHER_BOOKS)


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_a_store_opened_long_ago_never_shows_tokens_of_a_later_one(
    tmp_path: Path, mode: str
) -> None:
    path = build(tmp_path / "books", {"train": [[0] * 12] * 3})
    opened = open_store(path, mode=mode)
    for number in range(1, 4):
        build(path, {"train": [[number] * 12] * 3}, replace=True)
        try:
            assert corpus_of(opened) == {"train": [[0] * 12] * 3}
        except DamageError as error:
            assert number > 1 or mode == "pread"
            assert "open the store again if it was replaced" in str(error)


def test_who_opens_while_stores_are_replaced_sees_only_whole_ones(memory_disk: Path) -> None:
    # Every version is of one number alone: a mix would show.
    def version(number: int) -> dict[str, list[list[int]]]:
        return {"train": [[number] * 12] * (2 + number % 3), "val": [[number]]}

    path = build(memory_disk / "books", version(0))
    stop = threading.Event()
    seen: list[dict[str, list[list[int]]]] = []
    problems: list[BaseException] = []

    def open_and_read() -> None:
        while not stop.is_set():
            try:
                store = open_store(path)
            except BaseException as error:
                problems.append(error)
                return
            try:
                seen.append(corpus_of(store))
            except DamageError as error:
                # Files stay for one replacement; whoever reads for two of them is told so.
                if "open the store again if it was replaced" not in (error.remedy or ""):
                    problems.append(error)
                if open_store(path).fingerprint == store.fingerprint:
                    problems.append(error)

    readers = [threading.Thread(target=open_and_read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 40):
        build(path, version(number), replace=True)
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []
    numbers = [documents["val"][0][0] for documents in seen]
    assert all(
        documents == version(number) for documents, number in zip(seen, numbers, strict=True)
    )
    assert len(set(numbers)) > 3
