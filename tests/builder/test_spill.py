"""Encoded chunks on disk: whole or not there, and a full disk is told in words."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tokenreel.builder.spill import ALIGNMENT, Spill, Summary
from tokenreel.errors import WriteError

ARRAYS = {
    "ids": np.arange(5, dtype="<u2"),
    "offsets": np.array([0, 2, 5], "<i8"),
    "strings": np.empty(0, "u1"),
}


@pytest.fixture
def spill(tmp_path: Path) -> Spill:
    made = Spill(tmp_path / "chunks", np.dtype("<u2"))
    made.begin()
    return made


@pytest.fixture
def small_disk() -> Iterator[None]:
    """A limit of file sizes is the full disk that needs no administrator."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_chunk_is_there_when_it_is_whole_and_its_arrays_are_aligned(spill: Spill) -> None:
    writer = spill.create(12)
    writer.add(ARRAYS)
    writer.add(ARRAYS)
    assert spill.verified(12) is None
    summary = writer.finish(Summary(number=12))
    assert [path.name for path in spill.folder.iterdir()] == ["000012.chunk"]
    assert spill.verified(12) == summary
    for piece, arrays in zip(summary.pieces, spill.pieces(summary), strict=True):
        assert all(start % ALIGNMENT == 0 for _, start, _ in piece.values())
        assert {name: array.tolist() for name, array in arrays.items()} == {
            name: array.tolist() for name, array in ARRAYS.items()
        }


def test_what_was_abandoned_or_left_by_the_dead_is_gone(spill: Spill) -> None:
    writer = spill.create(1)
    writer.add(ARRAYS)
    writer.abandon()
    assert list(spill.folder.iterdir()) == []
    spill.create(2).add(ARRAYS)  # nobody finishes it
    (spill.folder / "000003.0123456789abcdef.tmp").touch()  # as former versions named them
    assert len(list(spill.folder.iterdir())) == 2
    spill.begin()
    assert list(spill.folder.iterdir()) == []


def test_a_disk_without_room_for_a_chunk_is_an_error_that_names_it(
    spill: Spill, small_disk: None
) -> None:
    writer = spill.create(1)
    with pytest.raises(WriteError, match=r"000001\.chunk.*: write failed: File too large; see to"):
        writer.add({"ids": np.zeros(5000, "<u2")})
    writer.abandon()
    assert list(spill.folder.iterdir()) == []
