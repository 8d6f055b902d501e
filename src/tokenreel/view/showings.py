"""What a page is told of the steps that show a document: some at a time, and how to go on.

A document of a few rows is found by the inverse order (feed/trace.py), a showing in up to a
millisecond. One that fills thousands of rows is in nearly every step, and found by looking at
step after step. Either way an answer takes some tenths of a second at most, however often the
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
    rows = feed.plans[source].find(document)
    searched = searched_steps(feed, feed.recipe.sources[source].name, start_step=start)
    if len(rows) < MANY_ROWS:
        hits, searched = _by_order(feed, source, document, searched, num_rows=len(rows))
    else:
        hits, searched = _by_steps(feed, source, rows, searched)
    return {
        "source": source,
        "document": document,
        "hits": [asdict(hit) for hit in hits],
        "searched": asdict(searched),
        "more": searched.goes_on,
        "in_rows": len(rows),
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
    feed: Feed, source: int, rows: list[tuple[int, int, int]], searched: Searched
) -> tuple[list[Hit], Searched]:
    """Find the rows of a document by looking at steps, until about a hundred are found."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for row, first, last in rows:
        ranges.setdefault(row, []).append((first, last))
    wanted = np.array(sorted(ranges), np.int64)
    searched = _until(searched, searched.start + STEPS_AT_ONCE)
    hits: list[Hit] = []
    for step in range(searched.start, searched.stop or 0):
        if len(hits) >= HITS_AT_ONCE:
            return hits, _until(searched, step)
        located = feed.locate(step)
        seats = np.flatnonzero((located.source == source) & np.isin(located.row, wanted))
        for seat in seats.tolist():
            epoch = int(located.epoch[seat])
            for first, last in ranges[int(located.row[seat])]:
                hits.append(Hit(epoch=epoch, step=step, row=seat, start=first, stop=last))
    return hits, searched


def _until(searched: Searched, stop: int | None) -> Searched:
    """Return the search that ends before a step, if that comes before its own end."""
    if stop is None or (searched.stop is not None and searched.stop <= stop):
        return searched
    return replace(searched, stop=stop, goes_on=True)
