"""zstd frames, fed to the decoder block by block.

    frame:  magic 4 │ header 2–14 │ block │ block │ … │ last block │ checksum 0 or 4
    block:  header 3 (last 1 bit, type 2 bits, size 21 bits) │ content

A block holds at most 128 KiB however small it is compressed, so feeding one at a time
bounds the output without a limit inside the decoder; and walking the structure shows
exactly where a file ends early or where foreign bytes begin, which the decoder's own
stream reader takes for an ordinary end. About 8,000 calls per GB. Windows over 128 MiB
(`zstd --long` beyond 27) are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tokenreel.text.sources.damage import damaged

FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # after one byte from 0x50 to 0x5f
MAX_WINDOW_BYTES = 1 << 27
RUN_BLOCK, RESERVED_BLOCK = 1, 3


def zstd_blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield what the frames of a zstd file hold."""
    num_frames = 0
    while magic := file.read(4):
        if magic == FRAME_MAGIC:
            yield from _frame_blocks(file, path)
        elif magic[1:] == SKIPPABLE_MAGIC and magic[0] >> 4 == 5:
            size = int.from_bytes(_exactly(4, file, path), "little")
            _pass_over(size, file, path)
        elif num_frames:
            raise damaged(path, "garbage after the end of the zstd data", file.tell() - len(magic))
        else:
            raise damaged(path, "not zstd data", 0)
        num_frames += 1
    if not num_frames:
        raise damaged(path, "the zstd data ends early", 0)


def _frame_blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    import zstandard

    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
    header, has_checksum = _read_header(file, path)
    try:
        decoder.decompress(header)
        is_last = False
        while not is_last:
            head = _exactly(3, file, path)
            bits = int.from_bytes(head, "little")
            is_last, kind, size = bool(bits & 1), bits >> 1 & 3, bits >> 3
            if kind == RESERVED_BLOCK:
                raise damaged(path, "the zstd data is damaged (reserved block)", file.tell())
            content = _exactly(1 if kind == RUN_BLOCK else size, file, path)
            if block := decoder.decompress(head + content):
                yield block
        if has_checksum:
            decoder.decompress(_exactly(4, file, path))
    except zstandard.ZstdError as error:
        raise damaged(path, f"the zstd data cannot be decoded ({error})", file.tell()) from error


def _read_header(file: BinaryIO, path: Path) -> tuple[bytes, bool]:
    descriptor = _exactly(1, file, path)[0]
    is_single_segment = bool(descriptor & 0x20)
    window_bytes = 0 if is_single_segment else 1
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    rest = _exactly(window_bytes + dictionary_bytes + size_bytes, file, path)
    return FRAME_MAGIC + bytes([descriptor]) + rest, bool(descriptor & 4)


def _exactly(num_bytes: int, file: BinaryIO, path: Path) -> bytes:
    data = file.read(num_bytes)
    if len(data) < num_bytes:
        raise damaged(path, "the zstd data ends early", file.tell())
    return data


def _pass_over(num_bytes: int, file: BinaryIO, path: Path) -> None:
    while num_bytes > 0:
        num_bytes -= len(_exactly(min(num_bytes, 1 << 20), file, path))
