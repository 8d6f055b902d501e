"""What a page is told of a document, and of the steps that show it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.feed.weights import refuse_bad_weights
from tokenreel.store.split import Split
from tokenreel.text.tokenizers.id_texts import MOST_IDS
from tokenreel.text.turns import clip_turns, token_weights
from tokenreel.view.clipped import clip_middle, told_place
from tokenreel.view.row_facts import LARGEST_RANGE, told_turns
from tokenreel.view.subject import Subject
from tokenreel.view.token_texts import token_texts

MOST_TURNS = 10_000


def source_split(subject: Subject, source: int) -> Split:
    """Return the split of a source by its number; ConfigError where there is no such."""
    plans = subject.feed.plans
    if not 0 <= source < len(plans):
        raise ConfigError("no such source", expected=f"0 to {len(plans) - 1}", actual=source)
    return plans[source].split


def check_document(split: Split, number: int) -> None:
    """Raise ConfigError unless a split has a document of this number."""
    if not split.num_documents:
        raise ConfigError(
            f"the documents of split {split.name!r} are not known",
            remedy="declare the id that ends a document (eos_id), where there is one",
        )
    if not 0 <= number < split.num_documents:
        raise ConfigError(
            f"split {split.name!r} has no such document",
            expected=f"0 to {split.num_documents - 1:,}",
            actual=number,
        )


def document_facts(
    subject: Subject,
    store: int,
    split: Split,
    number: int,
    *,
    start: int = 0,
    stop: int | None = None,
) -> dict[str, Any]:
    """Return tokens start to stop of a document, clipped, and all that is kept of it."""
    check_document(split, number)
    first, last = split.document_span(number)
    turns = split.turns_between(first, last) if split.has_turns else None
    clipped = None if turns is None else clip_turns(turns, first, stop=last)
    facts = {
        "document": number,
        "split": split.name,
        "tokens": last - first,
        "provenance": told_place(split, number),
        "place": _place(split, number),
        "record": split.record(number),
        "turns": [] if clipped is None else told_turns(clipped[:MOST_TURNS]),
    }
    tokens = token_facts(subject, store, split, first, last, start=start, stop=stop, turns=turns)
    return facts | tokens


def _place(split: Split, number: int) -> dict[str, str | int] | None:
    """Return the parts of where a document came from, clipped; None where they are not kept."""
    place = split.provenance(number)
    if place is None:
        return None
    parts = place.as_dict().items()
    return {name: clip_middle(part) if isinstance(part, str) else part for name, part in parts}


def token_facts(
    subject: Subject,
    store: int,
    split: Split,
    first: int,
    last: int,
    *,
    start: int = 0,
    stop: int | None = None,
    turns: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return tokens start to stop, counted from position `first` and clipped at `last`.

    `turns` (TURN) are those of these tokens, starts as positions.
    """
    length = last - first
    start = min(start, length)
    stop = max(min(length if stop is None else stop, length, start + LARGEST_RANGE), start)
    low, high = max(start - MOST_IDS, 0), min(stop + MOST_IDS, length)
    check_files(split, first + low, first + high)
    ids = split.read(first + low, first + high).tolist()
    texts, controls = token_texts(subject, store, ids)
    inside = slice(start - low, stop - low)
    return {
        "start": start,
        "stop": stop,
        "ids": ids[inside],
        "texts": texts[inside],
        "weights": _weights(split, first + start, first + stop, turns).tolist(),
        "controls": [low + place for place in controls if start <= low + place < stop],
    }


def check_files(split: Split, start: int, stop: int) -> None:
    """Raise DamageError if a file with tokens start to stop was cut off since it was opened.

    Who reads a mapped file behind its end is killed by a signal, and the page with it.
    """
    for number in _shards_between(split, start, stop):
        split.shards[number].check_sizes()


def _shards_between(split: Split, start: int, stop: int) -> range:
    first = int(np.searchsorted(split.token_starts, start, side="right")) - 1
    last = int(np.searchsorted(split.token_starts, stop))
    return range(max(first, 0), min(last, len(split.shards)))


def _weights(split: Split, start: int, stop: int, turns: np.ndarray | None) -> np.ndarray:
    """Return what tokens of a split weigh by themselves: stored, by their turns, or 1; float32.

    DamageError for a stored weight that is none, as where a batch is made of it.
    """
    if split.has_weights:
        weights = split.weights_between(start, stop)
        for number in _shards_between(split, start, stop):
            base = int(split.token_starts[number])
            low = max(start, base)
            in_shard = weights[low - start : int(split.token_starts[number + 1]) - start]
            refuse_bad_weights(in_shard, split.shards[number], low - base)
        return weights.astype(np.float32)
    if turns is not None:
        return token_weights(clip_turns(turns, start, stop=stop), stop - start)
    return np.ones(stop - start, np.float32)
