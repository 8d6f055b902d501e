"""Fault 10: any bit flipped in any file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.building import build_full, corpus_of
from tests.store.independent import find_damage

from tokenreel import open_store
from tokenreel.errors import StoreError
from tokenreel.inspect.verify import verify_store


@pytest.fixture
def full(memory_disk: Path) -> Path:
    return build_full(memory_disk / "books")


def flips(file: Path, step: int = 1) -> Iterator[int]:
    """Flip the bits of a file in turn (every step-th), yield its number, and put it back."""
    data = file.read_bytes()
    for position in range(0, 8 * len(data), step):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << (position % 8)
        file.write_bytes(damaged)
        yield position
    file.write_bytes(data)


def test_a_flipped_bit_of_the_manifest_shows_at_open(full: Path) -> None:
    # Every third bit here, every thirteenth of the tokens below; the soak takes them all.
    num_flips = 0
    for position in flips(full / "manifest.json", 3):
        with pytest.raises(StoreError):
            open_store(full)
            pytest.fail(f"bit {position} of the manifest was not missed")
        num_flips += 1
    assert num_flips > 3_000
    assert verify_store(full).ok


def test_a_flipped_bit_of_an_index_shows_at_open(full: Path) -> None:
    for file in sorted(full.glob("*/*.docs")):
        for position in flips(file):
            with pytest.raises(StoreError) as caught:
                open_store(full)
                pytest.fail(f"bit {position} of {file} was not missed")
            assert caught.value.where == str(file)
    open_store(full)


def test_a_flipped_bit_of_any_other_file_is_found_by_verify(full: Path) -> None:
    whole = corpus_of(open_store(full))
    files = sorted(file for file in full.glob("*/*") if file.suffix not in (".docs", ".json"))
    kinds = (".bin", ".turns", ".weights", ".origins", ".strings", ".records", ".objects")
    assert {file.suffix for file in files} == set(kinds)
    for file in files[: len(files) // 4]:
        for position in flips(file, 13):
            verdict = verify_store(full, threads=1)
            assert not verdict.ok, f"bit {position} of {file}"
            problem = verdict.problems[0]
            offset = position // 8 // 16 * 16
            assert problem.where == str(file)
            assert f"at offset {offset:,} fail" in problem.what
            assert find_damage(full) == [str(file.relative_to(full))]
    assert corpus_of(open_store(full)) == whole
    assert verify_store(full).ok


def test_a_flipped_bit_of_a_record_is_found_by_verify(full: Path) -> None:
    for file in sorted(full.glob("*/*.json"))[:2]:
        for position in flips(file, 257):
            verdict = verify_store(full, threads=1)
            assert not verdict.ok, f"bit {position} of {file}"
            assert verdict.problems[0].where == str(file)
    assert verify_store(full).ok


@pytest.mark.soak
@pytest.mark.parametrize(
    "suffix", ["bin", "turns", "weights", "origins", "strings", "records", "objects", "json"]
)
def test_every_single_bit_of_every_file_is_found_by_verify(full: Path, suffix: str) -> None:
    files = sorted(full.glob(f"*/*.{suffix}"))
    for file in files[:1] if suffix == "json" else files:  # of records one: they are long
        for position in flips(file):
            verdict = verify_store(full, threads=1)
            assert not verdict.ok, f"bit {position} of {file}"
            assert verdict.problems[0].where == str(file)


@pytest.mark.soak
def test_every_single_bit_of_the_manifest_shows_at_open(full: Path) -> None:
    for position in flips(full / "manifest.json"):
        with pytest.raises(StoreError):
            open_store(full)
            pytest.fail(f"bit {position} of the manifest was not missed")
