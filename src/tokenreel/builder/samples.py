"""A few documents of a store, token by token, for people to look at.

Of each split some documents, evenly over its length, and of each its first tokens and its last.
What a token says is found by decoding one token more at a time, since a token by itself may be
half a character, or lose the blank in front of it: 120 short calls a document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tokenreel.store.split import Document
from tokenreel.store.store import Store
from tokenreel.text.tokenizers import Tokenizer

FIRST_TOKENS = 100
LAST_TOKENS = 20
MAX_DOCUMENTS = 4  # of a split
REPLACEMENT = "\ufffd"  # what half a character is decoded to

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """Tokens that are shown as one: a token, or those that spell one character together."""

    ids: tuple[int, ...]
    text: str
    is_control: bool
    is_trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The beginning of a document and its end: what it is called, and how much is left out."""

    name: str
    first: tuple[Chip, ...]
    num_between: int
    last: tuple[Chip, ...]


def samples_of(store: Store, tokenizer: Tokenizer) -> list[Sample]:
    """Return the samples of a store; the same store gives the same."""
    names = {number: token for token, number in tokenizer.control_ids.items()}
    samples = []
    for split in store.splits:
        last = (store[split].num_documents or 0) - 1
        chosen = np.linspace(0, last, min(MAX_DOCUMENTS, last + 1)).astype(np.int64)
        for number in chosen.tolist():
            samples.append(_sample(store[split].document(number), names, tokenizer.decode))
    return samples


def _sample(document: Document, names: dict[int, str], decode: Decode) -> Sample:
    is_trained = document.loss_weights > 0
    is_short = len(document) <= FIRST_TOKENS + LAST_TOKENS
    stop = len(document) if is_short else FIRST_TOKENS
    start = len(document) if is_short else len(document) - LAST_TOKENS

    def chips(part: slice) -> tuple[Chip, ...]:
        ids, trained = document.tokens[part].tolist(), is_trained[part].tolist()
        return tuple(_chips(ids, trained, names, decode))

    place = "" if document.provenance is None else f" · {document.provenance}"
    return Sample(
        name=f"{document.split} {document.number:,}{place}",
        first=chips(slice(0, stop)),
        num_between=start - stop,
        last=chips(slice(start, None)),
    )


def _chips(
    ids: Sequence[int], is_trained: Sequence[bool], control_names: dict[int, str], decode: Decode
) -> Iterator[Chip]:
    """Yield the tokens: control tokens by name, runs of others by what they spell."""
    places = range(len(ids))
    for (control, trained), run in groupby(
        places, key=lambda place: (control_names.get(ids[place]), is_trained[place])
    ):
        numbers = [ids[place] for place in run]
        if control is None:
            spelled = _spelled(numbers, decode)
        else:
            spelled = (((number,), control) for number in numbers)
        for shown, text in spelled:
            yield Chip(ids=shown, text=text, is_control=control is not None, is_trained=trained)


def _spelled(ids: Sequence[int], decode: Decode) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield tokens and what they add to the text; half a character waits for its other half."""
    told, waiting = "", 0
    for stop in range(1, len(ids) + 1):
        text = decode(ids[:stop])
        is_whole = not text.endswith(REPLACEMENT) or stop == len(ids)
        if is_whole:
            yield tuple(ids[waiting:stop]), text[len(told) :]
            told, waiting = text, stop
