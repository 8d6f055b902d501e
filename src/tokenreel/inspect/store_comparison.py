"""Where the content of two stores differs first: split, document, token.

Content is what batches are made of: tokens, the borders of documents, turns, stored weights, groups
and records. Where a document came from is no part of it, nor is the layout: a store and its
conversion have the same content. Shards of equal checksums are not read. All others are read and
compared, up to `max_tokens` of each split: some 2 seconds for a billion tokens in memory.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.progress import SILENT, Progress
from tokenreel.store.split import Document, Split
from tokenreel.store.store import Store
from tokenreel.text.provenance import Provenance

DEFAULT_TOKENS = 10**9
TOKENS_AT_ONCE = 2**22
DOCUMENTS_AT_ONCE = 2**16
SHOWN_BEFORE = 4  # tokens before the first that differs, and from it on
SHOWN_FROM = 12
FLAGS = ("has_documents", "has_turns", "has_weights", "has_groups", "has_records")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A document on one side: its tokens, its origin, and ids from token `start` of it on."""

    shard: int
    num_tokens: int
    provenance: str | None
    start: int
    ids: Sequence[int]

    def as_dict(self) -> dict[str, Any]:
        """Return the side, ready for JSON."""
        facts = {"shard": self.shard, "tokens": self.num_tokens, "provenance": self.provenance}
        return {**facts, "start": self.start, "ids": list(self.ids)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first document that differs, what differs in it, and its first token that does.

    document None: documents are not known, and tokens are counted through the split. A side that
    has no such document is None.
    """

    document: int | None
    fields: Sequence[str]
    token: int | None
    a: Side | None
    b: Side | None

    def as_dict(self) -> dict[str, Any]:
        """Return the difference, ready for JSON."""
        sides = {"a": self.a and self.a.as_dict(), "b": self.b and self.b.as_dict()}
        where = {"document": self.document, "token": self.token}
        return {**where, "fields": list(self.fields), **sides}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitComparison:
    """A split of two stores: what differs first, and how many of its tokens are known by then."""

    name: str
    first: FirstDifference | None
    num_tokens: int
    is_complete: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the split, ready for JSON."""
        first = None if self.first is None else self.first.as_dict()
        searched = {"searched_tokens": self.num_tokens, "complete": self.is_complete}
        return {"split": self.name, "same": self.first is None, "first": first, **searched}


def compare_splits(
    a: Store, b: Store, *, max_tokens: int = DEFAULT_TOKENS, progress: Progress = SILENT
) -> list[SplitComparison]:
    """Compare the splits that both stores have, each up to so many tokens."""
    if max_tokens < 0:
        raise ConfigError("bad number of tokens", expected=">= 0", actual=max_tokens)
    names = [name for name in a.splits if name in b.splits]
    totals = [min(a[name].num_tokens, b[name].num_tokens, max_tokens) for name in names]
    progress.start("comparing stores", total=sum(totals), unit="tokens")
    return [_compare_split(a, b, name, max_tokens, progress) for name in names]


def _compare_split(
    a: Store, b: Store, name: str, max_tokens: int, progress: Progress
) -> SplitComparison:
    one, other = a[name], b[name]
    common = min(one.num_tokens, other.num_tokens)
    start, stop = min(_same_tokens(a, b, name), max_tokens), min(common, max_tokens)
    at = next(_tokens_differ(one, other, start, stop, progress), None)
    if at is None and stop == common and one.num_tokens != other.num_tokens:
        at = common  # one goes on where the other ends
    if not (one.has_documents and other.has_documents):
        at = 0 if _unequal_flags(one, other) else at
        first = None if at is None else _in_stream(one, other, at)
    else:
        number = _first_document(one, other, start, stop if at is None else at, at)
        first = None if number is None else _in_document(one, other, number)
    is_complete = first is not None or stop == common
    return SplitComparison(name=name, first=first, num_tokens=stop, is_complete=is_complete)


def _same_tokens(a: Store, b: Store, name: str) -> int:
    """Return how many tokens lie in shards, from the first on, that have equal checksums."""
    if a.manifest is None or b.manifest is None:
        return 0
    same = 0
    for one, other in zip(a.manifest.splits[name], b.manifest.splits[name], strict=False):
        if one.record_sha256 != other.record_sha256:  # of all files of the shard, and its facts
            break
        same += one.tokens
    return same


def _unequal_flags(one: Split, other: Split) -> list[str]:
    """Return what only one side keeps of its documents."""
    unequal = [flag for flag in FLAGS if getattr(one, flag) != getattr(other, flag)]
    return [flag.removeprefix("has_") for flag in unequal]


def _blocks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for begin in range(start, stop, TOKENS_AT_ONCE):
        yield begin, min(begin + TOKENS_AT_ONCE, stop)


def _tokens_differ(
    one: Split, other: Split, start: int, stop: int, progress: Progress
) -> Iterator[int]:
    """Yield the positions of tokens that differ, the first of each block."""
    progress.advance(start)
    for begin, end in _blocks(start, stop):
        # As int64, since foreign layouts may keep signed numbers.
        mine, its = (split.read(begin, end).astype(np.int64) for split in (one, other))
        progress.advance(end - begin)
        yield from (begin + np.flatnonzero(mine != its)[:1]).tolist()


def _first_document(
    one: Split, other: Split, start: int, stop: int, token: int | None
) -> int | None:
    """Return the first document that differs up to position `stop`; `token`: a token that does."""
    if _unequal_flags(one, other):
        return 0
    found = [
        number
        for differ in DIFFER
        for number in itertools.islice(differ(one, other, start, stop), 1)
    ]
    if token is not None:
        found.append(_document_at(one if token < one.num_tokens else other, token))
    return min(found, default=None)


def _borders_differ(one: Split, other: Split, start: int, stop: int) -> Iterator[int]:
    """Yield the first document that begins or ends elsewhere, or that only one side has."""
    counts = [int(split.document_starts[-1]) for split in (one, other)]
    for begin in range(_first_ending(one, start), min(counts), DOCUMENTS_AT_ONCE):
        end = min(begin + DOCUMENTS_AT_ONCE, *counts)
        mine, its = (np.stack(split.document_bounds(begin, end)) for split in (one, other))
        yield from (begin + np.flatnonzero((mine != its).any(axis=0))[:1]).tolist()
        if int(mine[0, -1]) > stop:
            return
    if counts[0] != counts[1]:
        yield min(counts)


def _weights_differ(one: Split, other: Split, start: int, stop: int) -> Iterator[int]:
    """Yield documents in which a stored weight differs, the first of each block."""
    for begin, end in _blocks(start, stop if one.has_weights else start):
        mine, its = (split.weights_between(begin, end) for split in (one, other))
        yield from (
            _document_at(one, begin + at) for at in np.flatnonzero(mine != its)[:1].tolist()
        )


def _turns_differ(one: Split, other: Split, start: int, stop: int) -> Iterator[int]:
    """Yield documents in which a turn differs, the first of each block."""
    for begin, end in _blocks(start, stop if one.has_turns else start):
        mine, its = (split.turns_between(begin, end) for split in (one, other))
        count = min(len(mine), len(its))
        at = int(np.append(np.flatnonzero(mine[:count] != its[:count]), count)[0])
        yield from (
            _document_at(one, int(turns["start"][at])) for turns in (mine, its) if at < len(turns)
        )


def _records_differ(one: Split, other: Split, start: int, stop: int) -> Iterator[int]:
    """Yield documents whose records differ."""
    last = _document_at(one, stop) if one.has_records else 0
    last = min(last, int(other.document_starts[-1]))
    numbers = range(_first_ending(one, start), last)
    return (number for number in numbers if one.record(number) != other.record(number))


Differ = Callable[[Split, Split, int, int], Iterator[int]]
DIFFER: tuple[Differ, ...] = (_borders_differ, _weights_differ, _turns_differ, _records_differ)


def _document_at(split: Split, position: int) -> int:
    """Return the document that holds the token at a position; their number if none does."""
    numbers = range(int(split.document_starts[-1]))
    return bisect_right(numbers, position, key=lambda number: split.document_span(number)[1])


def _first_ending(split: Split, position: int) -> int:
    """Return the first document that ends at a position or behind it, empty ones too."""
    numbers = range(int(split.document_starts[-1]))
    return bisect_left(numbers, position, key=lambda number: split.document_span(number)[1])


def _in_stream(one: Split, other: Split, at: int) -> FirstDifference:
    """Describe a token that differs where documents are not known on both sides."""
    sides = [
        None if at >= split.num_tokens else _side(split, 0, split.num_tokens, at, origin=None)
        for split in (one, other)
    ]
    fields = _unequal_flags(one, other) or ["tokens"]
    return FirstDifference(document=None, token=at, fields=fields, a=sides[0], b=sides[1])


def _in_document(one: Split, other: Split, number: int) -> FirstDifference:
    """Describe a document that differs, or that only one side has."""
    documents = [
        split.document(number) if number < int(split.document_starts[-1]) else None
        for split in (one, other)
    ]
    token, fields = _unequal_parts(*documents)
    fields = _unequal_flags(one, other) or fields
    sides = []
    for split, document in zip((one, other), documents, strict=True):
        side = None
        if document is not None:
            origin = document.provenance
            side = _side(split, *split.document_span(number), token or 0, origin=origin)
        sides.append(side)
    return FirstDifference(document=number, token=token, fields=fields, a=sides[0], b=sides[1])


def _unequal_parts(one: Document | None, other: Document | None) -> tuple[int | None, list[str]]:
    """Return the first token that differs in two documents, and what else does."""
    if one is None or other is None:
        return None, ["documents"]
    count, fields = min(len(one), len(other)), []
    unequal = np.flatnonzero(one.tokens[:count].astype(np.int64) != other.tokens[:count])
    token = int(unequal[0]) if len(unequal) else None
    if token is None and len(one) != len(other):
        token = count
    if token is not None:
        fields.append("tokens")
    if not np.array_equal(_or_empty(one.turns), _or_empty(other.turns)):
        fields.append("turns")
    if not np.array_equal(_or_empty(one.weights), _or_empty(other.weights)):
        fields.append("weights")
    if one.record != other.record:
        fields.append("records")
    return token, fields or ["documents"]


def _or_empty(column: np.ndarray | None) -> np.ndarray:
    return np.empty(0) if column is None else column


def _side(split: Split, begin: int, end: int, token: int, *, origin: Provenance | None) -> Side:
    """Return ids around a token of the document, or stream, from position begin to end."""
    start = max(token - SHOWN_BEFORE, 0)
    stop = min(begin + token + SHOWN_FROM, end)
    first = min(begin + start, stop)
    return Side(
        shard=max(int(np.searchsorted(split.token_starts[:-1], begin, side="right")) - 1, 0),
        num_tokens=end - begin,
        provenance=None if origin is None else str(origin),
        start=start,
        ids=[int(number) for number in split.read(first, stop)],
    )
