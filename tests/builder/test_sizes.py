"""Sizes in bytes are numbers or text, for every keyword of a build that is a size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenreel import build
from tokenreel.errors import ConfigError


def test_a_size_as_text_means_the_same_build_as_its_bytes(tmp_path: Path) -> None:
    given: dict[str, Any] = {"out": tmp_path / "s", "tokenizer": "byte", "progress": False}
    (tmp_path / "in.txt").write_text("some text")
    as_text: dict[str, Any] = {
        "chunk_bytes": "64K",
        "max_record_bytes": "1M",
        "max_uncompressed_bytes": "2GiB",
    }
    build(tmp_path / "in.txt", **given, **as_text)
    as_bytes: dict[str, Any] = {
        "chunk_bytes": 64_000,
        "max_record_bytes": 10**6,
        "max_uncompressed_bytes": 2**31,
    }
    assert build(tmp_path / "in.txt", **given, **as_bytes).already_built


@pytest.mark.parametrize("name", ["chunk_bytes", "max_record_bytes", "max_uncompressed_bytes"])
def test_a_size_that_is_none_is_named(tmp_path: Path, name: str) -> None:
    wrong: dict[str, Any] = {name: "1Q"}
    with pytest.raises(ConfigError, match=rf"bad {name} \(expected more than 0 bytes, such as"):
        build(texts=["a"], out=tmp_path / "s", tokenizer="byte", **wrong)
