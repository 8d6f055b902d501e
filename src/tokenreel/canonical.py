"""JSON with exactly one spelling.

What tokenreel writes as JSON it writes canonically: keys sorted, no spaces,
UTF-8, finite numbers, one newline at the end. What it reads must be spelled the
same way, so every flipped bit of such a file shows: as JSON that does not parse,
as a spelling that is not canonical, or as a fact that does not fit.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import NoReturn

from tokenreel.errors import FormatError

MAX_JSON_BYTES = 16 * 1024 * 1024


def canonical_bytes(value: object) -> bytes:
    """Return the canonical JSON of `value`.

    >>> canonical_bytes({"b": 1, "a": [None, "é"]})
    b'{"a":[null,"\\xc3\\xa9"],"b":1}\\n'
    """
    return canonical_json(value).encode() + b"\n"


def canonical_json(value: object) -> str:
    """Return the canonical JSON of `value` as text, without the newline at its end.

    >>> canonical_json({"b": 1, "a": [None, "é"]})
    '{"a":[null,"é"],"b":1}'
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: object) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def read_canonical(path: Path) -> dict[str, object]:
    """Read a canonical JSON object, or raise FormatError naming what is wrong with it."""
    return parse_canonical(read_limited(path), where=path)


def read_limited(path: Path) -> bytes:
    """Read a file of at most 16 MB; a larger one is refused before it is read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FormatError("not a regular file", where=path)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size  # of this file: the name may get another
            if size > MAX_JSON_BYTES:
                raise FormatError(
                    "file is too large",
                    where=path,
                    expected=f"<= {MAX_JSON_BYTES:,} bytes",
                    actual=size,
                )
            return file.read(size)
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", where=path) from error


def parse_canonical(data: bytes, *, where: Path) -> dict[str, object]:
    """Parse canonical JSON; duplicate keys, NaN, deep nesting and other spellings are errors."""
    value = parse_strict(data, where=where)
    if not _is_canonical(value, data):
        raise FormatError(
            "the JSON is not in its canonical spelling, so the file was damaged or edited",
            where=where,
            remedy='run "tokenreel verify --repair", or restore the file',
        )
    return value


def _is_canonical(value: object, data: bytes) -> bool:
    try:
        return canonical_bytes(value) == data
    except ValueError:
        return False  # a lone surrogate spelled as an escape, or a number like 1e999


def parse_strict(data: bytes, *, where: Path) -> dict[str, object]:
    """Parse a JSON object; duplicate keys, NaN and deep nesting are errors."""

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(items)
        if len(result) != len(items):
            names = [name for name, _ in items]
            twice = next(name for name in names if names.count(name) > 1)
            raise FormatError(f"key {twice!r} occurs twice", where=where)
        return result

    def constant(name: str) -> NoReturn:
        raise FormatError(f"{name} is not a number", where=where)

    try:
        value = json.loads(data.decode(), object_pairs_hook=pairs, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise FormatError(f"not UTF-8 at byte {error.start:,}", where=where) from error
    except json.JSONDecodeError as error:
        raise FormatError(f"not JSON at byte {error.pos:,}: {error.msg}", where=where) from error
    except RecursionError as error:
        raise FormatError("JSON is nested too deeply", where=where) from error
    except ValueError as error:
        raise FormatError(f"a number is too long: {error}", where=where) from error
    if not isinstance(value, dict):
        raise FormatError("not a JSON object", where=where, actual=type(value).__name__)
    return value
