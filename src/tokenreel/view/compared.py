"""What a page is told of two subjects: what differs, the first step that does, and one step."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.inspect.comparison import compare
from tokenreel.inspect.first_step import DEFAULT_STEPS
from tokenreel.inspect.step_comparison import compare_step
from tokenreel.view.subject import Subject

LEAST_STEPS = 16
COMPARED_TOKENS = 2 * 10**9  # a page does not wait for more: some seconds
COMPARED_STORE_TOKENS = 10**8


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
        return compare_step(a.feed, b.feed, step).as_dict()

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


def _most_steps(a: Subject, b: Subject) -> int:
    """Return how many steps are compared at most: fewer of large batches."""
    feeds = [item.target for item in (a, b) if isinstance(item.target, Feed)]
    tokens = [feed.recipe.global_batch_size * feed.recipe.seq_len for feed in feeds]
    return min(max(COMPARED_TOKENS // max([*tokens, 1]), LEAST_STEPS), DEFAULT_STEPS)
