"""Strategies that damage what a parser reads: bytes of a file, leaves of JSON.

A file of random bytes is refused at its first check. What reaches the checks behind is a real
file with a few bytes changed, or real JSON with one value that nobody expects there.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

NUMBERS = (-1, 0, 1, 2**16, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30, 10**400)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([*NUMBERS, *(-number for number in NUMBERS)]),
    st.integers(-3, 300),
    st.sampled_from([0.5, -0.0, 1e308, 5e-324, -1.5]),
    st.sampled_from(["", "\0", "\ud800", "/", "..", "*", "{", "a" * 300, "é", "0", "true", "</s>"]),
    st.text(max_size=6),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["\ud800", "name"]), inner)
    ),
    max_leaves=6,
)
WORDS = st.sampled_from(
    [b"\0", b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 8, b"9" * 400, b"[" * 400, b"{}", b"\n"]
)
SNIPPETS = WORDS | st.binary(max_size=8)


@st.composite
def damaged_bytes(draw: st.DrawFn, whole: bytes) -> bytes:
    """Flip, cut, repeat, insert, overwrite or remove bytes, up to three times."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        stop = min(place + draw(st.integers(0, 64)), len(data))
        match draw(st.sampled_from(["flip", "cut", "repeat", "insert", "overwrite", "remove"])):
            case "flip" if place < len(data):
                data[place] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[place:]
            case "repeat":
                data[place:place] = data[place:stop]
            case "insert":
                data[place:place] = draw(SNIPPETS)
            case "overwrite":
                snippet = draw(SNIPPETS)
                data[place : place + len(snippet)] = snippet
            case "remove":
                del data[place:stop]
    return bytes(data)


@st.composite
def damaged_json(draw: st.DrawFn, whole: Any) -> Any:
    """Replace, remove or add one value somewhere in a JSON value."""
    value = copy.deepcopy(whole)
    places: list[tuple[Any, Any]] = []
    levels = [value]
    for level in levels:
        keys = list(level) if isinstance(level, dict) else range(len(level))
        places += [(level, key) for key in keys]
        levels += [level[key] for key in keys if isinstance(level[key], (dict, list))]
    if not places or draw(st.integers(0, 30)) == 0:
        return draw(JSON)
    level, key = draw(st.sampled_from(places))
    match draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"])):
        case "replace":
            level[key] = draw(JSON)
        case "remove":
            del level[key]
        case "add" if isinstance(level, dict):
            level[draw(st.text(max_size=6))] = draw(JSON)
        case "add":
            level.insert(key, draw(JSON))
    return value


def damaged_json_bytes(whole: bytes) -> st.SearchStrategy[bytes]:
    """Damage a JSON file in its bytes, or in one of its values."""
    spelled = damaged_json(json.loads(whole)).map(lambda value: json.dumps(value).encode())
    return spelled | damaged_bytes(whole)
