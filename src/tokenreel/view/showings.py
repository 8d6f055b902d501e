"""What a page is told of the steps that show a document: some at a time, and how to go on.

A document of a few rows is found by the inverse order (feed/trace.py), a showing in up to a
millisecond. One that fills thousands of rows is in nearly every step, and found by looking at
step after step; its rows are never listed, which would be hundreds of megabytes for a document of
a billion tokens. Either way an answer takes some tenths of a second at most, however often the
run shows the document.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tokenreel.feed.feed import Feed
from tokenreel.feed.share_curve import rows_before
from tokenreel.feed.trace import Hit, Searched, searched_steps
from tokenreel.inspect.exposure import step_of_epoch
from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split
from tokenreel.view.document_facts import check_document, source_split
from tokenreel.view.subject import Subject

HITS_AT_ONCE = 100
MANY_ROWS = 1_000  # of one document: from here on steps are looked at
STEPS_AT_ONCE = 1_000


def where_facts(subject: Subject, source: int, document: int, *, start: int = 0) -> dict[str, Any]:
    """Return the first steps and rows that show a document, from a step on.

    `more`: there may be others from `searched.stop` on.
    """
    feed, split = subject.feed, source_split(subject, source)
    check_document(split, document)
    first, last = split.document_span(document)
    searched = searched_steps(feed, feed.recipe.sources[source].name, start_step=start)
    rows = (last - first) // feed.recipe.seq_len  # that it fills, or more
    if rows < MANY_ROWS:
        rows = len(feed.plans[source].find(document))
    if rows < MANY_ROWS:
        hits, searched = _by_order(feed, source, document, searched, num_rows=rows)
    else:
        hits, searched = _by_steps(feed, source, (first, last), searched)
    return {
        "source": source,
        "document": document,
        "hits": [asdict(hit) for hit in hits],
        "searched": asdict(searched),
        "more": searched.goes_on,
    }


def _by_order(
    feed: Feed, source: int, document: int, searched: Searched, *, num_rows: int
) -> tuple[list[Hit], Searched]:
    """Find a document in so many epochs that it is shown about a hundred times."""
    epochs = max(HITS_AT_ONCE // max(num_rows, 1), 1)
    epoch = int(rows_before(feed, searched.start)[source]) // feed.plans[source].num_rows
    stop = step_of_epoch(feed, source, epoch + epochs)
    searched = _until(searched, None if stop is None else max(stop, searched.start + 1))
    name = feed.recipe.sources[source].name
    hits = feed.where(name, document, start_step=searched.start, stop_step=searched.stop)
    return hits, searched


def _by_steps(
    feed: Feed, source: int, span: tuple[int, int], searched: Searched
) -> tuple[list[Hit], Searched]:
    """Find the rows with tokens of a span by looking at steps, until about a hundred are found."""
    searched = _until(searched, searched.start + STEPS_AT_ONCE)
    hits: list[Hit] = []
    for step in range(searched.start, searched.stop or 0):
        if len(hits) >= HITS_AT_ONCE:
            return hits, _until(searched, step)
        located = feed.locate(step)
        seats = np.flatnonzero(located.source == source)
        plan = feed.plans[source]
        shown = _shown(plan.split, plan.pieces(located.row[seats]), span)
        for row, first, last in zip(*(column.tolist() for column in shown), strict=True):
            seat = int(seats[row])
            epoch = int(located.epoch[seat])
            hits.append(Hit(epoch=epoch, step=step, row=seat, start=first, stop=last))
    return hits, searched


def _shown(
    split: Split, pieces: Pieces, span: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which tokens of a span some rows show: row, start and stop within it, int64."""
    position = split.token_starts[pieces.shard] + pieces.start
    starts = np.maximum(position, span[0])
    stops = np.minimum(position + pieces.length, span[1])
    inside = np.flatnonzero(starts < stops)
    rows, starts, stops = pieces.row[inside], starts[inside], stops[inside]
    # What a border of shards parts is one stretch: it begins where nothing before goes on.
    begins = np.ones(len(rows), bool)
    begins[1:] = (rows[1:] != rows[:-1]) | (starts[1:] != stops[:-1])
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(rows))[: len(firsts)] - 1
    return rows[firsts], starts[firsts] - span[0], stops[lasts] - span[0]


def _until(searched: Searched, stop: int | None) -> Searched:
    """Return the search that ends before a step, if that comes before its own end."""
    if stop is None or (searched.stop is not None and searched.stop <= stop):
        return searched
    return replace(searched, stop=stop, goes_on=True)
