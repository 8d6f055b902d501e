"""Lines out of blocks, in bounded memory, and where a file can be cut between lines.

A line is held only up to `limit` bytes; a longer one is announced as None as soon as it
crosses the limit and then passed over. Splitting runs at memory speed; the index costs
one pass at the speed of memory, which also makes the file's hash, and 8 bytes per MiB.

The hash is XXH3, 128 bits (40 GB/s here; SHA-256 1.6): it tells one corpus from another and a
file that was edited from one that was not. It is no defence against somebody who wants two
files to look alike; what is built from them is checksummed with SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from tokenreel import native
from tokenreel.text.sources.blocks import BLOCK_BYTES, fill, plain_blocks

NEWLINE = 10
LINE_BYTES = 1 << 16  # what most lines are shorter than


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """Hold the size and hash of a file, and for line files the lines before each MiB."""

    num_bytes: int
    xxh3: str
    lines_before: tuple[int, ...] = ()


def hash_file(path: Path) -> FileFacts:
    """Return size and hash of a file, in one pass."""
    digest, num_bytes = xxhash.xxh3_128(), 0
    for block in _whole_blocks(path):
        digest.update(block)
        num_bytes += len(block)
    return FileFacts(num_bytes=num_bytes, xxh3=digest.hexdigest())


def index_lines(path: Path) -> FileFacts:
    """Return size, hash and the line index of a file, in one pass."""
    digest, num_bytes, num_lines = xxhash.xxh3_128(), 0, 0
    lines_before = []
    for block in _whole_blocks(path):
        lines_before.append(num_lines)
        digest.update(block)
        num_bytes += len(block)
        num_lines += count_newlines(block)
    return FileFacts(num_bytes=num_bytes, xxh3=digest.hexdigest(), lines_before=tuple(lines_before))


def count_newlines(block: bytes | memoryview) -> int:
    """Return the number of newlines.

    >>> count_newlines(b"a\\nb\\n\\n")
    3
    """
    extension = native.extension()
    if extension is not None:
        return int(extension.count_newlines(block))
    # Several times faster than bytes.count, which goes byte by byte.
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == NEWLINE))


def cut_between_lines(path: Path, facts: FileFacts, target_bytes: int) -> list[tuple[int, int]]:
    """Return (byte, lines before it) of each cut, the first being (0, 0), the end not included.

    Each part is the shortest that ends with a line and has at least `target_bytes`.
    """
    cuts = [(0, 0)]
    while (aim := cuts[-1][0] + target_bytes) < facts.num_bytes:
        byte = _after_newline(path, aim - 1)
        if byte is None or byte >= facts.num_bytes:
            break
        cuts.append((byte, _lines_before(path, facts, byte)))
    return cuts


def split_lines(
    blocks: Iterable[bytes], *, start: int, limit: int
) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield (byte, lines before it, line without its newline); a line over `limit` bytes is None.

    Blank lines are left out here, where they cost next to nothing.

    >>> list(split_lines([b"a\\n\\nb", b"c\\n", b"toolong\\nd"], start=0, limit=4))
    [(0, 0, b'a'), (3, 2, b'bc'), (6, 3, None), (14, 4, b'd')]
    """
    held: list[bytes] = []
    byte, number, num_held = start, 0, 0
    for block in blocks:
        blank = 0 if num_held else _blank_bytes(block, limit)
        if blank:
            byte, number = byte + blank, number + count_newlines(block[:blank])
            block = block[blank:]
        first, *others = block.split(b"\n")
        was_over = num_held > limit
        num_held += len(first)
        if num_held > limit:
            held.clear()
            if not was_over:
                yield byte, number, None
        else:
            held.append(first)
        if not others:
            continue
        if num_held <= limit and (line := b"".join(held)) and not line.isspace():
            yield byte, number, line
        byte += num_held + 1
        last = others.pop()
        for line in others:
            number += 1
            if line and (len(line) > limit or not line.isspace()):
                yield byte, number, line if len(line) <= limit else None
            byte += len(line) + 1
        number += 1
        num_held = len(last)
        held = [last] if num_held <= limit else []
        if num_held > limit:
            yield byte, number, None
    if 0 < num_held <= limit and not (line := b"".join(held)).isspace():
        yield byte, number, line


def _blank_bytes(block: bytes, limit: int) -> int:
    """Return how many bytes the blank lines have that a block is made of; 0 if it has others."""
    stop = block.rfind(b"\n") + 1 if block.isspace() else 0
    return stop if stop <= limit else 0  # one of them might be too long


def _whole_blocks(path: Path) -> Iterator[memoryview]:
    """Yield the file in blocks, all but the last whole, in memory that is used again."""
    buffer = memoryview(bytearray(BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        while filled := fill(file, buffer):
            yield buffer[:filled]


def _after_newline(path: Path, start: int) -> int | None:
    byte = start
    for block in plain_blocks(path, start=start, block_bytes=LINE_BYTES):
        at = block.find(b"\n")
        if at >= 0:
            return byte + at + 1
        byte += len(block)
    return None


def _lines_before(path: Path, facts: FileFacts, byte: int) -> int:
    number = byte // BLOCK_BYTES
    if number >= len(facts.lines_before):
        number = len(facts.lines_before) - 1
    first = number * BLOCK_BYTES
    within = sum(count_newlines(block) for block in plain_blocks(path, start=first, stop=byte))
    return facts.lines_before[number] + within
