"""A few documents of a store, token by token, for people to look at.

Of each split some documents, evenly over its length, and of each its first tokens and its last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.display.token_chips import Chip, chips_of
from tokenreel.store.split import Document
from tokenreel.store.store import Store
from tokenreel.text.tokenizers import Tokenizer
from tokenreel.text.tokenizers.id_texts import IdTexts

FIRST_TOKENS = 100
LAST_TOKENS = 20
MAX_DOCUMENTS = 4  # of a split


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The beginning of a document and its end: what it is called, and how much is left out."""

    name: str
    first: tuple[Chip, ...]
    num_between: int
    last: tuple[Chip, ...]


def samples_of(store: Store, tokenizer: Tokenizer) -> list[Sample]:
    """Return the samples of a store; the same store gives the same."""
    id_texts, samples = IdTexts(tokenizer), []
    for split in store.splits:
        last = (store[split].num_documents or 0) - 1
        chosen = np.linspace(0, last, min(MAX_DOCUMENTS, last + 1)).astype(np.int64)
        for number in chosen.tolist():
            samples.append(_sample(store[split].document(number), id_texts))
    return samples


def _sample(document: Document, id_texts: IdTexts) -> Sample:
    weights = document.loss_weights
    is_short = len(document) <= FIRST_TOKENS + LAST_TOKENS
    stop = len(document) if is_short else FIRST_TOKENS
    start = len(document) if is_short else len(document) - LAST_TOKENS

    def chips(part: slice) -> tuple[Chip, ...]:
        ids, asked = document.tokens[part].tolist(), weights[part].tolist()
        return tuple(chips_of(ids, id_texts.of(ids), asked, controls=id_texts.control_names))

    place = "" if document.provenance is None else f" · {document.provenance}"
    return Sample(
        name=f"{document.split} {document.number:,}{place}",
        first=chips(slice(0, stop)),
        num_between=start - stop,
        last=chips(slice(start, None)),
    )
