"""What a page is told of two subjects: what differs, the first step that does, and one step."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.trace import check_within
from tokenreel.inspect.comparison import compare
from tokenreel.inspect.first_step import DEFAULT_STEPS
from tokenreel.inspect.step_comparison import (
    RowComparison,
    StepComparison,
    compare_rows,
    compare_step,
    shapes_differ,
    wanted_extra,
)
from tokenreel.view.subject import Subject

LEAST_STEPS = 16
COMPARED_TOKENS = 2 * 10**9  # a page does not wait for more: some seconds
COMPARED_STORE_TOKENS = 10**8
SLOTS_AT_ONCE = 1 << 21  # of each side: some 60 MB


class Compared:
    """Two subjects; what differs between them is found once, when it is first asked for."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self._subjects = tuple(subjects)
        self._lock = threading.Lock()
        self._found: dict[str, Any] | None = None

    def facts(self) -> dict[str, Any]:
        """Return what differs in the identities, and the first step or document that does."""
        a, b = self._both()
        with self._lock:  # who asks while it is looked for waits for the same answer
            if self._found is None:
                found = compare(
                    a.target,
                    b.target,
                    max_steps=_most_steps(a, b),
                    max_tokens=COMPARED_STORE_TOKENS,
                )
                self._found = {"titles": [a.title, b.title], **found.as_dict()}
            return self._found

    def step_facts(self, step: int) -> dict[str, Any]:
        """Return which rows of a step differ, and where."""
        a, b = self._both()
        return _compare_step(a.feed, b.feed, step).as_dict()

    def _both(self) -> tuple[Subject, Subject]:
        if len(self._subjects) != 2:
            raise ConfigError(
                "there is nothing to compare with",
                expected="two targets",
                actual=len(self._subjects),
                remedy="name both: tokenreel view A B",
            )
        a, b = self._subjects
        return a, b


def _compare_step(a: Feed, b: Feed, step: int) -> StepComparison:
    """Compare a step; a large one some rows at a time, so that memory stays bounded."""
    num_rows, width = a.recipe.global_batch_size, a.recipe.seq_len
    is_whole = all(feed.deal.num_rows_in(step) == num_rows for feed in (a, b))
    if num_rows * width <= SLOTS_AT_ONCE or shapes_differ(a, b) is not None or not is_whole:
        return compare_step(a, b, step)
    check_within(a, step)
    extra, size = wanted_extra(a, b), max(SLOTS_AT_ONCE // width, 1)
    rows: list[RowComparison] = []
    for start in range(0, num_rows, size):
        seats = range(start, min(start + size, num_rows))
        made = [feed.rows(step, seats, extra=extra) for feed in (a, b)]
        found = compare_rows(a, b, *made)
        rows += [replace(row, row=row.row + start) for row in found]
    return StepComparison(step=step, rows=rows)


def _most_steps(a: Subject, b: Subject) -> int:
    """Return how many steps are compared at most: fewer of large batches."""
    feeds = [item.target for item in (a, b) if isinstance(item.target, Feed)]
    tokens = [feed.recipe.global_batch_size * feed.recipe.seq_len for feed in feeds]
    return min(max(COMPARED_TOKENS // max([*tokens, 1]), LEAST_STEPS), DEFAULT_STEPS)
