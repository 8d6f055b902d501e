"""Search the documents of a subject: by number, by where they came from, or by their text.

A number is that of a document. `web.jsonl:231` is a place, found in the tables of origins alone;
so is the id of a record. Anything else is looked for in the decoded text, from the first
document to the last: some megabytes a second. Progress is told several times a second, and who
takes no more ends the search. Letters are found in upper and lower case.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.store.split import Split
from tokenreel.text.tokenizers.id_texts import IdTexts
from tokenreel.view.clipped import LONGEST_TEXT, told_place
from tokenreel.view.document_facts import check_files, source_split
from tokenreel.view.place_search import asked_place, entries_from
from tokenreel.view.subject import Subject

MOST_FOUND = 200
PROGRESS_SECONDS = 0.1
CHUNK_TOKENS = 8_192  # decoded at once
AROUND = 60  # characters of a snippet before and behind what was found
NUMBER = re.compile(r"#?\s*([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A split that is searched, and what the page calls it."""

    source: int | None
    store: int
    number: int
    split: Split

    def hit(self, document: int | None, **facts: Any) -> dict[str, Any]:
        """Return what is said of a document that was found."""
        return {
            "source": self.source,
            "store": self.store,
            "split": self.number,
            "document": document,
            "provenance": told_place(self.split, document),
            "at": None,
            "snippet": None,
            "match": None,
            **facts,
        }


def find_documents(
    subject: Subject, query: str, *, source: int | None = None, store: int | None = None
) -> Iterator[dict[str, Any]]:
    """Return what is found, object by object: hits, progress from 0 to 1, and the end.

    Wrong numbers raise at once, before the first object is asked for.
    """
    fields = _fields(subject, source, store)
    if not fields:
        raise ConfigError(
            "there are no documents to search",
            where=subject.title,
            expected="a recipe or a store",
            actual=subject.kind.replace("_", " "),
        )
    number, text = NUMBER.fullmatch(query.strip()), query.strip()
    if number is None and not _has_texts(subject, fields) and not _has_places(fields):
        raise _no_tokenizer(subject, text)
    if number is not None:
        return _told(_numbered(fields, int(number[1])))
    return _told(_searched(subject, fields, text))


def _has_texts(subject: Subject, fields: list[Field]) -> bool:
    return any(subject.id_texts[field.store] for field in fields)


def _has_places(fields: list[Field]) -> bool:
    return any(shard.origin_file is not None for field in fields for shard in field.split.shards)


def _no_tokenizer(subject: Subject, text: str) -> ConfigError:
    return ConfigError(
        "text cannot be searched without a tokenizer",
        where=subject.title,
        expected="the number of a document, or file:line",
        actual=repr(text[:60]),
        remedy="give the tokenizer of the store (tokenizer=…)",
    )


def _fields(subject: Subject, source: int | None, store: int | None) -> list[Field]:
    """Return the splits to search: those of sources, or all of a store."""
    if source is not None or (store is None and subject.kind == "recipe"):
        chosen = range(len(subject.feed.plans)) if source is None else [source]
        fields = []
        for number in chosen:
            split = source_split(subject, number)
            place = list(subject.stores[number].splits.values()).index(split)
            fields.append(Field(source=number, store=number, number=place, split=split))
        return fields
    numbers = range(len(subject.stores)) if store is None else [store]
    return [
        Field(source=None, store=number, number=place, split=split)
        for number in numbers
        for place, split in enumerate(subject.store(number).splits.values())
    ]


def _told(found: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what is found, no more than some, and at last how many."""
    count = 0
    yield {"progress": 0.0}
    for item in found:
        count += "document" in item
        yield item
        if count == MOST_FOUND:
            yield {"done": True, "found": count, "more": True}
            return
    yield {"progress": 1.0}
    yield {"done": True, "found": count, "more": False}


def _numbered(fields: list[Field], number: int) -> Iterator[dict[str, Any]]:
    for field in fields:
        if number < (field.split.num_documents or 0):
            yield field.hit(number)


def _searched(subject: Subject, fields: list[Field], text: str) -> Iterator[dict[str, Any]]:
    """Yield documents by their places; where there are none, by their text."""
    total = max(sum(field.split.num_tokens for field in fields), 1)
    told, is_placed = time.monotonic(), False
    for hit in _placed(fields, text):
        if hit is not None:
            is_placed = True
            yield hit
        elif time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            yield {"progress": 0.0}
    if is_placed:
        return
    if not _has_texts(subject, fields):
        raise _no_tokenizer(subject, text)
    for done, hit in _read(subject, fields, re.compile(re.escape(text), re.IGNORECASE)):
        if hit is not None:
            yield hit
        elif time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            yield {"progress": done / total}


def _read(
    subject: Subject, fields: list[Field], pattern: re.Pattern[str]
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield how many tokens of all splits were searched, with each document that has the text."""
    before = 0
    for field in fields:
        texts = subject.id_texts[field.store]
        if texts is not None:
            for done, hit in _scanned(field, texts, pattern):
                yield before + done, hit
        before += field.split.num_tokens


def _scanned(
    field: Field, texts: IdTexts, pattern: re.Pattern[str]
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield how many tokens were searched, with each document that has the text, once."""
    split = field.split
    for document, first, last in _stretches(split):
        # What is found may begin in the chunk before: so many tokens it has at most, by bytes.
        overlap = min(4 * len(pattern.pattern), CHUNK_TOKENS // 2)
        for start in range(first, last, CHUNK_TOKENS):
            begin = max(start - overlap, first)
            check_files(split, begin, min(start + CHUNK_TOKENS, last))
            ids = split.read(begin, min(start + CHUNK_TOKENS, last)).tolist()
            # Of a longer token, which only a hostile vocabulary has, the beginning is searched.
            words = [(word or "")[:LONGEST_TEXT] for word in texts.of(ids)]
            text = "".join(words)
            found = pattern.search(text)
            if found is not None:
                ends = list(accumulate(map(len, words)))
                token = int(np.searchsorted(ends, found.start(), side="right"))
                low = max(found.start() - AROUND, 0)
                yield (
                    start,
                    field.hit(
                        document,
                        at=begin + token - (first if document is not None else 0),
                        snippet=text[low : found.end() + AROUND],
                        match=[found.start() - low, found.end() - low],
                    ),
                )
                if document is not None:
                    break
            yield min(start + CHUNK_TOKENS, last), None


def _stretches(split: Split) -> Iterator[tuple[int | None, int, int]]:
    """Yield each document and its tokens; the whole split where documents are not known."""
    if not split.has_documents:
        yield None, 0, split.num_tokens
        return
    total = split.num_documents or 0
    for low in range(0, total, 1_024):
        high = min(low + 1_024, total)
        begins, ends = split.document_bounds(low, high)
        yield from zip(range(low, high), begins.tolist(), ends.tolist(), strict=True)


def _placed(fields: list[Field], text: str) -> Iterator[dict[str, Any] | None]:
    """Yield the documents that came from a place, file:line, or have an id; None now and then."""
    asked = asked_place(text)
    for field in fields:
        for number, shard in enumerate(field.split.shards):
            for entries in entries_from(shard, asked):
                for entry in entries.tolist():
                    yield field.hit(int(field.split.document_starts[number]) + entry)
                yield None
