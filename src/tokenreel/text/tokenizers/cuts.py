"""Where a long document may be cut without changing its ids.

For use with a reference that holds a hundred or more bytes of memory per character
while it works: cut into pieces, a document of any length needs little.

A cut is made between an ASCII letter and a blank or newline that follows it. With a
splitting pattern of the byte-level family that place is a boundary whatever stands
around it: every alternative that can end in a letter ends at a letter that no letter
follows, looks no further ahead than a quote mark, and so matches the same with the
text ending there; and the next match starts at the blank in either case. No known
Unicode normalization joins the two. Only patterns that were read through for this are
on the list; a definition with any other is not cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PIECE_CHARACTERS = 1 << 20
_CUT = re.compile(r"[A-Za-z](?=[ \n])")

_LETTERS_THEN_REST = (
    # r50k, p50k, GPT-2
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # cl100k, Llama 3
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # Qwen 2
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)


def may_be_cut(definition: Mapping[str, Any]) -> bool:
    """Tell whether documents may be cut under this content definition."""
    if definition.get("added_tokens") or definition.get("normalizer"):
        return False
    pre_tokenizer = definition.get("pre_tokenizer") or {}
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    if any(step.get("add_prefix_space") for step in steps):
        return False
    if len(steps) == 1:
        return steps[0].get("type") == "ByteLevel" and bool(steps[0].get("use_regex"))
    if len(steps) != 2 or steps[1].get("type") != "ByteLevel" or steps[1].get("use_regex"):
        return False
    split = steps[0]
    return (
        split.get("type") == "Split"
        and split.get("behavior") == "Isolated"
        and not split.get("invert")
        and (split.get("pattern") or {}).get("Regex") in _LETTERS_THEN_REST
    )


def cut(text: str, *, size: int = PIECE_CHARACTERS) -> list[str]:
    """Return the text in pieces of about `size` characters, cut where it may be.

    >>> cut("one two, three", size=4)
    ['one two, three']
    >>> cut("one two, three four", size=3)
    ['one', ' two, three', ' four']
    """
    pieces, start = [], 0
    while len(text) - start > size:
        place = _CUT.search(text, start + size - 1)
        if place is None:
            break
        pieces.append(text[start : place.end()])
        start = place.end()
    return [*pieces, text[start:]]
