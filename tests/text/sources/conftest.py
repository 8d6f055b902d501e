"""What the tests of the sources share: reading a source to its end, and writing JSONL."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tokenreel.text.sources import Record, TextSource

WHOLE = 1 << 40


def _read_all(source: TextSource, target_bytes: int = WHOLE) -> list[Record]:
    return [record for part in source.ranges(target_bytes) for record in source.read(part)]


def _write_lines(path: Path, values: list[Any]) -> Path:
    data = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstandard.compress(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _assert_resumes_everywhere(source: TextSource, target_bytes: int = WHOLE) -> None:
    """Resume at every record, through JSON, and expect exactly the rest."""
    for part in source.ranges(target_bytes):
        reader = source.read(part)
        records, cursors = [], [None]
        for record in reader:
            records.append(record)
            cursors.append(json.loads(json.dumps(reader.cursor)))
        assert records
        for position, cursor in enumerate(cursors):
            assert list(source.read(part, cursor=cursor)) == records[position:]


@pytest.fixture(scope="session")
def read_all() -> Callable[..., list[Record]]:
    return _read_all


@pytest.fixture(scope="session")
def write_lines() -> Callable[[Path, list[Any]], Path]:
    return _write_lines


@pytest.fixture(scope="session")
def assert_resumes_everywhere() -> Callable[..., None]:
    return _assert_resumes_everywhere
