"""The block shuffle: a permutation, seeded, restorable at every record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import ConfigError
from tokenreel.text.sources import InMemory, Record, open_source
from tokenreel.text.sources.shuffle import Shuffled

Reading = Callable[..., list[Record]]


def texts(source: Shuffled) -> list[str | None]:
    return [record.text for part in source.ranges(1) for record in source.read(part)]


@given(st.integers(0, 60), st.integers(1, 70), st.integers(0, 2**64))
def test_it_is_a_permutation_within_blocks(length: int, buffer: int, seed: int) -> None:
    items = [str(number) for number in range(length)]
    shuffled = texts(Shuffled(InMemory(items), buffer=buffer, seed=seed))
    for start in range(0, length, buffer):
        assert (
            sorted(shuffled[start : start + buffer], key=lambda text: int(text or 0))
            == (items[start : start + buffer])
        )
    assert len(shuffled) == length


def test_it_resumes_at_every_record_over_several_files(
    tmp_path: Path,
    write_lines: Callable[[Path, list[Any]], Path],
    assert_resumes_everywhere: Callable[..., None],
) -> None:
    for name in "abc":
        write_lines(tmp_path / f"{name}.jsonl", [{"text": f"{name}{n}"} for n in range(11)])
    assert_resumes_everywhere(Shuffled(open_source(tmp_path), buffer=7, seed=3))


def test_bad_records_are_counted_once_however_often_it_resumes(tmp_path: Path) -> None:
    lines = ["broken" if n % 4 == 0 else f'{{"text": "{n}"}}' for n in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source = Shuffled(open_source(tmp_path / "a.jsonl", on_bad="skip"), buffer=6, seed=1)
    [part] = source.ranges(1)
    reader, seen, skipped = source.read(part), [], 0
    while (record := next(reader, None)) is not None:
        seen.append(record.text)
        skipped += reader.skipped.count
        reader = source.read(part, cursor=reader.cursor)
    assert sorted(map(int, filter(None, seen))) == [n for n in range(20) if n % 4]
    assert skipped == 5


def test_the_fingerprint_knows_seed_and_buffer() -> None:
    sources = [
        Shuffled(InMemory(["a"]), buffer=buffer, seed=seed) for buffer in (1, 2) for seed in (1, 2)
    ]
    assert len({source.fingerprint() for source in sources}) == 4


def test_an_empty_buffer_is_refused() -> None:
    with pytest.raises(ConfigError, match="buffer is empty"):
        Shuffled(InMemory(["a"]), buffer=0, seed=1)
