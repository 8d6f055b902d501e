"""Sizes as people write them."""

from __future__ import annotations

import argparse

import pytest

from tokenreel.cli.flags import size_argument
from tokenreel.config.sizes import parse_size
from tokenreel.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("4096B", 4096),
        (4096, 4096),
        ("64K", 64_000),
        ("64k", 64_000),
        ("64kB", 64_000),
        ("64KiB", 65_536),
        ("200M", 200_000_000),
        ("200 MB", 200_000_000),
        ("128Mi", 134_217_728),
        ("128mib", 134_217_728),
        ("1.5G", 1_500_000_000),
        ("1.1G", 1_100_000_000),
        (".5GiB", 536_870_912),
        ("2T", 2_000_000_000_000),
        ("1,000,000", 1_000_000),
        ("1_000", 1000),
        ("1.0005K", 1000),
    ],
)
def test_a_size_means_what_its_suffix_says(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "M", "12X", "1.5.5G", "-4M", "0", "0M", "0.2", "4iB", "4 K B", "1e9", "٣M", 0, -1]
)
def test_what_is_no_size_is_refused_with_examples(text: str | int) -> None:
    with pytest.raises(ConfigError, match=r"bad size .*200M, 1\.5G .*128MiB.*got "):
        parse_size(text)


def test_an_option_says_why_a_size_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shard-size", type=size_argument)
    assert parser.parse_args(["--shard-size", "128M"]).shard_size == 128_000_000
    with pytest.raises(SystemExit):
        parser.parse_args(["--shard-size", "much"])
    assert "argument --shard-size: bad size (expected" in capsys.readouterr().err
