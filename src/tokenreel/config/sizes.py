"""Sizes in bytes as people write them: 4096, 200M, 1.5G, 128MiB.

K, M, G and T (with or without a B) are powers of 1,000, as disks and networks count; Ki, Mi,
Gi and Ti are powers of 1,024, as memory does. A size is a whole number of bytes: what is left
over is cut off (1.0005K is 1,000 bytes).
"""

from __future__ import annotations

import re
from fractions import Fraction

from tokenreel.errors import ConfigError

SIZE_HELP = "200M, 1.5G (powers of 1,000), 128MiB (of 1,024), or a number of bytes"
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d[\d_,]*(?:\.\d+)?|\.\d+) ?([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)


def parse_size(text: str | int, *, name: str = "size") -> int:
    """Return the bytes that a size means; a number stays what it is. `name` is for errors.

    >>> parse_size("200M"), parse_size("1.5G"), parse_size("128MiB"), parse_size("4096")
    (200000000, 1500000000, 134217728, 4096)
    """
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or (found[3] and not found[2]):
        raise _no_size(text, name)
    number, unit, binary = found.groups()
    # Fractions, because 1.1G in binary floats is not 1,100,000,000.
    value = (
        Fraction(re.sub("[_,]", "", number)) * (1024 if binary else 1000) ** _UNITS[unit.lower()]
    )
    if value < 1:
        raise _no_size(text, name)
    return int(value)


def _no_size(text: object, name: str) -> ConfigError:
    return ConfigError(
        f"bad {name}", expected=f"more than 0 bytes, such as {SIZE_HELP}", actual=repr(text)
    )
