"""Configuration files that are too large, too deep, no files, or have a mark in front."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tokenreel.config.config_file import read_table
from tokenreel.config.load import load
from tokenreel.errors import ConfigError
from tokenreel.feed.recipe import Recipe

MIB = 1 << 20
HOSTILE = {
    "deep.toml": b"a = " + b"[" * 200 + b"]" * 200,
    "deeper.toml": b"a = " + b"{b=" * 5_000,
    "dotted.toml": b".".join([b"a"] * 5_000) + b" = 1",
    "digits.toml": b"seq_len = " + b"9" * 10_000,
    "hex.toml": b"seq_len = 0x" + b"9" * 10_000,
    "deep.yaml": b"a: " + b"[" * 5_000,
    "digits.yaml": b"seq_len: " + b"9" * 10_000,
    "number.yaml": b"1: 2",
    "date.yaml": b"seq_len: 2001-01-01",
    "deep.xml": b"<a>" * 5_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    with pytest.raises(ConfigError) as caught:
        load(Recipe, path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("comment", ["#{}\n", "#{}\na: 1\n", "<a><!--{}--></a>"])
def test_a_file_over_one_mib_is_refused_and_one_of_a_mib_is_read(
    tmp_path: Path, comment: str
) -> None:
    suffix = {"#": "yaml" if "a:" in comment else "toml", "<": "xml"}[comment[0]]
    path = tmp_path / f"recipe.{suffix}"
    path.write_text(comment.format("x" * (MIB + 2 - len(comment))))
    assert path.stat().st_size == MIB and read_table(path).where == path
    path.write_text(comment.format("x" * (MIB + 3 - len(comment))))
    with pytest.raises(ConfigError, match=r"too large for a configuration \(expected <= 1 MiB\)"):
        read_table(path)


def test_a_pipe_and_a_folder_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "folder.toml").mkdir()
    for name in ("pipe.toml", "folder.toml"):
        with pytest.raises(ConfigError, match="not a regular file"):
            read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["a\0.toml", "\ud800.toml"])
def test_what_can_be_no_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_table(name)


def test_a_mapping_that_is_too_deep_is_refused() -> None:
    content: dict[str, Any] = {}
    for _ in range(5_000):
        content = {"sources": content}
    with pytest.raises(
        ConfigError, match=r"holds a value that no setting has|recursion limit exceeded"
    ):
        load(Recipe, content)


def test_a_byte_order_mark_in_front_is_no_fault(tmp_path: Path) -> None:
    texts = {"toml": "seed = 7", "yaml": "seed: 7", "xml": "<recipe><seed>7</seed></recipe>"}
    for suffix, text in texts.items():
        path = tmp_path / f"recipe.{suffix}"
        path.write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert read_table(path).content in ({"seed": 7}, {"seed": "7"})
