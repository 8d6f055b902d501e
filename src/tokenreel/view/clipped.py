"""Texts of a store as long as a page can show them: whoever made it wrote names of any length.

An answer has a text for each of up to 65,536 slots, and a provenance for each of their segments.
So one long name of a control token, or one long id of a record, would make answers of gigabytes.
What is left out is counted in its place.
"""

from __future__ import annotations

from tokenreel.store.split import Split

LONGEST_TEXT = 256  # characters of a token; those of vocabularies in use have up to 128
USUAL_TEXT = 32  # characters that tokens may have on average; ordinary text has four
FREE_TEXT = 4_096  # characters that a few long tokens may have besides
LONGEST_PLACE = 300
PLACE_HEAD = 100  # of which so many from the beginning; the end tells more: file, line and id


def clip_texts(texts: list[str | None]) -> list[str | None]:
    """Return texts of tokens, each clipped, and shorter ones where nearly all are long.

    >>> clip_texts(["a", None, "b" * 1_256])[2][-20:]
    'bb… 1,000 characters'
    """
    lengths = [len(text) for text in texts if text is not None]
    if max(lengths, default=0) <= USUAL_TEXT:
        return texts
    most = LONGEST_TEXT
    if sum(min(length, most) for length in lengths) > USUAL_TEXT * len(texts) + FREE_TEXT:
        most = USUAL_TEXT
    return [text if text is None or len(text) <= most else _clipped(text, most) for text in texts]


def _clipped(text: str, most: int) -> str:
    return f"{text[:most]}… {len(text) - most:,} characters"


def told_place(split: Split, document: int | None) -> str | None:
    """Return where a document came from, clipped; None where that is not kept."""
    place = None if document is None else split.provenance(document)
    return None if place is None else clip_middle(str(place))


def clip_middle(text: str) -> str:
    """Return a name of a file, or more of a place, without its middle if it is long."""
    if len(text) <= LONGEST_PLACE:
        return text
    tail = LONGEST_PLACE - PLACE_HEAD
    return f"{text[:PLACE_HEAD]}… {len(text) - LONGEST_PLACE:,} characters …{text[-tail:]}"
