"""Files as blocks of plain bytes: plain, gzip and zstd, with a limit on what they expand to.

Blocks are at most 1 MiB, whatever the file claims. A compressed file that ends early, is
damaged, has bytes after its end, or expands past the limits is an error that names the
offset in the compressed file; damage is never skipped, because nothing tells what was
lost. Concatenated gzip members and zstd frames are one file, as their tools hold it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO

from tokenreel.errors import InputError
from tokenreel.text.sources.damage import damaged
from tokenreel.text.sources.read_options import MIB, ReadOptions
from tokenreel.text.sources.zstd import zstd_blocks

BLOCK_BYTES = MIB
# Small files may honestly be very repetitive; a bomb is one that is large as well.
RATIO_GRACE_BYTES = MIB
# Read in small steps, so that what is unpacked is held against what it is unpacked from.
COMPRESSED_BYTES = 1 << 16

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def plain_blocks(
    path: Path, *, start: int = 0, stop: int | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[bytes]:
    """Yield the bytes [start, stop) of a file in blocks."""
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        left = block_bytes if stop is None else stop - start
        while left > 0 and (block := file.read(min(block_bytes, left))):
            yield block
            if stop is not None:
                left -= len(block)


def fill(file: RawIOBase, buffer: memoryview) -> int:
    """Read until the buffer is full or the file ends; return how many bytes.

    Memory that is used again costs half of what `read` costs, whose bytes are new every time.
    """
    filled = 0
    while filled < len(buffer) and (taken := file.readinto(buffer[filled:])):
        filled += taken
    return filled


def uncompressed_blocks(
    path: Path, options: ReadOptions, *, start: int = 0, at: Callable[[int], None] = lambda _: None
) -> Iterator[bytes]:
    """Yield what a compressed (or plain) file holds, from byte `start` of the content on.

    Before each block of a compressed file `at` is told how much of the file has been read.
    """
    compression = COMPRESSIONS.get(path.suffix)
    if compression is None:
        yield from plain_blocks(path, start=start)
        return
    decode = zstd_blocks if compression == "zstd" else gzip_blocks
    position = 0
    with path.open("rb") as file:
        for block in decode(file, path):
            position += len(block)
            at(file.tell())
            _check_expansion(position, file, path, options)
            if position > start:
                yield block[max(0, start - (position - len(block))) :]


def gzip_blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield what the members of a gzip file hold."""
    member = zlib.decompressobj(wbits=31)
    num_members, fed = 0, False
    while data := file.read(COMPRESSED_BYTES):
        full = False
        while data or full:
            fed = True
            try:
                block = member.decompress(data, BLOCK_BYTES)
            except zlib.error as error:
                raise damaged(path, _gzip_fault(num_members, error), file.tell()) from error
            if block:
                yield block
            data, full = member.unconsumed_tail, len(block) == BLOCK_BYTES
            if member.eof:
                data, full = member.unused_data, False
                member = zlib.decompressobj(wbits=31)
                num_members, fed = num_members + 1, False
    if fed or not num_members:
        raise damaged(path, "the gzip data ends early", file.tell())


def _gzip_fault(num_members: int, error: zlib.error) -> str:
    if "incorrect header" in str(error):
        return "garbage after the end of the gzip data" if num_members else "not gzip data"
    return f"the gzip data is damaged ({error})"


def _check_expansion(num_bytes: int, file: BinaryIO, path: Path, options: ReadOptions) -> None:
    if num_bytes > options.max_uncompressed_bytes:
        raise InputError(
            "the file expands past max_uncompressed_bytes",
            where=path,
            expected=f"at most {options.max_uncompressed_bytes:,} bytes",
            actual=f"{num_bytes:,} at byte {file.tell():,} of the compressed file",
            remedy="raise max_uncompressed_bytes if the file is trusted",
        )
    if num_bytes > RATIO_GRACE_BYTES and num_bytes > options.max_ratio * file.tell():
        raise InputError(
            "the file expands past max_ratio",
            where=path,
            expected=f"at most {options.max_ratio:g} times its size",
            actual=f"{num_bytes:,} bytes from {file.tell():,}",
            remedy="raise max_ratio if the file is trusted",
        )
