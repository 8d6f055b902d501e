"""Fault 21: decompression bombs, truncated gzip and zstd, garbage after the end."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.errors import InputError
from tokenreel.text.sources import Reader, open_source
from tokenreel.text.sources.blocks import uncompressed_blocks
from tokenreel.text.sources.read_options import ReadOptions

MIB = 1 << 20
LINES = b"".join(b'{"text": "document %d %x"}\n' % (n, n * n * 7919) for n in range(3000))


def pack(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data)
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def read(path: Path, **settings: Any) -> Reader:
    source = open_source(path, **settings)
    return source.read(source.ranges(1)[0])


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("on_bad", ["error", "skip"])
def test_a_file_cut_at_any_byte_is_an_error_that_no_policy_skips(
    tmp_path: Path, suffix: str, on_bad: str
) -> None:
    whole = pack(LINES, suffix)
    path = tmp_path / f"a.jsonl{suffix}"
    cuts = {0, 1, 2, 3, 4, 5, 9, 12, 17, len(whole) // 2, *range(len(whole) - 9, len(whole))}
    for size in sorted(cuts):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError) as caught:
            list(read(path, on_bad=on_bad))
        assert str(path) in str(caught.value)
        assert "ends early" in str(caught.value) or "not zstd data" in str(caught.value)
        assert "of the compressed file (expected a complete" in str(caught.value)


@pytest.mark.parametrize(("suffix", "kind"), [(".gz", "gzip"), (".zst", "zstd")])
@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 100, b"hello, world", b"PK\3\4"])
def test_garbage_after_the_end_is_an_error(
    tmp_path: Path, suffix: str, kind: str, garbage: bytes
) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(LINES, suffix) + garbage)
    with pytest.raises(InputError, match=rf"garbage after the end of the {kind} data|ends early"):
        list(read(path))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_plain_text_under_a_compressed_name_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(LINES)
    with pytest.raises(InputError, match=r"not (gzip|zstd) data"):
        list(read(path))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_flipped_bit_never_passes_for_the_content(tmp_path: Path, suffix: str) -> None:
    whole = pack(LINES, suffix)
    path = tmp_path / f"a.jsonl{suffix}"
    chance = random.Random(1)
    for _ in range(60):
        at, bit = chance.randrange(len(whole)), 1 << chance.randrange(8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        try:
            content = b"".join(uncompressed_blocks(path, ReadOptions()))
        except InputError:
            continue
        assert content == LINES  # a bit of the header that means nothing


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_several_members_or_frames_are_one_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(LINES[:1001], suffix) + pack(b"", suffix) + pack(LINES[1001:], suffix))
    assert b"".join(uncompressed_blocks(path, ReadOptions())) == LINES


def test_skippable_zstd_frames_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    note = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"note!"
    path.write_bytes(note + pack(LINES, ".zst") + note)
    assert b"".join(uncompressed_blocks(path, ReadOptions())) == LINES
    path.write_bytes(pack(LINES, ".zst") + note[:-1])
    with pytest.raises(InputError, match="ends early"):
        list(read(path))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 30_000)), max_size=6),
    st.integers(-5, 19),
    st.booleans(),
    st.integers(0, 200_000),
)
def test_zstd_content_is_that_of_the_reference_decoder_from_any_byte(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[tuple[bytes, int]],
    level: int,
    checksum: bool,
    start: int,
) -> None:
    data = b"".join(part * times for part, times in runs)
    path = tmp_path_factory.mktemp("zstd") / "a.zst"
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=checksum)
    path.write_bytes(compressor.compress(data))
    options = ReadOptions(max_ratio=1e6)
    assert b"".join(uncompressed_blocks(path, options, start=start)) == data[start:]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_bomb_is_refused_at_the_limit_in_bounded_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb.jsonl{suffix}"
    blank = (b" " * 9_999 + b"\n") * 1_000
    path.write_bytes(pack(blank, suffix) * 30)  # 286 MiB of blank lines
    assert path.stat().st_size < MIB
    bounded = {"max_uncompressed_bytes": 9 * MIB, "max_ratio": 1e6}
    for settings_, named in [({}, "max_ratio"), (bounded, "max_unc")]:
        tracemalloc.start()
        try:
            with pytest.raises(InputError, match=f"expands past {named}.*; raise {named}"):
                list(read(path, **settings_))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 10 * MIB


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_bomb_is_refused_before_much_of_it_is_unpacked(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb.jsonl{suffix}"
    data = pack(b"\n" * (96 * MIB), suffix)
    path.write_bytes(data)
    unpacked = 0
    with pytest.raises(InputError, match="expands past max_ratio"):
        for block in uncompressed_blocks(path, ReadOptions()):
            unpacked += len(block)
    # A step of 64 KiB may be unpacked to 250 times as much before it is held to be a bomb.
    assert unpacked <= 250 * (64 << 10) + MIB
    assert sum(map(len, uncompressed_blocks(path, ReadOptions(max_ratio=1e6)))) == 96 * MIB


def test_a_small_file_may_be_as_repetitive_as_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(pack(b"\n" * MIB, ".gz"))
    assert len(b"".join(uncompressed_blocks(path, ReadOptions()))) == MIB


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_what_is_below_the_limit_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(LINES, suffix))
    assert len(list(read(path, max_uncompressed_bytes=len(LINES)))) == 3000
    with pytest.raises(InputError, match="expands past max_uncompressed_bytes"):
        list(read(path, max_uncompressed_bytes=len(LINES) - 1))
