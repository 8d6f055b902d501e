"""meta.json, and the checksum it carries of the tokenizer's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenreel.canonical import parse_strict, read_limited
from tokenreel.dropin.caches.cache_builder import file_sha256
from tokenreel.dropin.caches.cache_writer import meta_bytes
from tokenreel.errors import MissingFileError
from tokenreel.filesystem import LOCAL


def write_meta(path: str, meta: dict) -> None:
    """Write `meta` as JSON to `path`, whole or not at all; equal content, equal bytes."""
    LOCAL.make_dir(Path(path).absolute().parent)
    LOCAL.write_whole(Path(path), meta_bytes(meta))


def read_meta(path: str) -> dict[str, Any]:
    """Return the content of a meta.json; damage is a FormatError that names the byte."""
    if not Path(path).exists():
        raise MissingFileError("there is no such file", where=path, remedy="build the cache")
    return parse_strict(read_limited(Path(path)), where=Path(path))


def sha256_file(path: str) -> str:
    """Return the SHA-256 (hex) of a file, read in pieces."""
    return file_sha256(Path(path))
