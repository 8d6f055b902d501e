"""What an object tells of itself: facts in a line, its parts in a few more."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

MOST_LINES = 8


def never_raising(tell: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a __repr__ that falls back on Python's own, for objects half made or half gone."""

    @functools.wraps(tell)
    def told(self: Any) -> str:
        try:
            return tell(self)
        except Exception:
            return object.__repr__(self)

    return told


def drawn_or_none(draw: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    """Return a _repr_html_ that never raises: it gives None, and a notebook takes the repr."""

    @functools.wraps(draw)
    def drawn(self: Any) -> str | None:
        try:
            return draw(self)
        except Exception:
            return None

    return drawn


def count_of(number: int | None, noun: str) -> str:
    """Return a number with its noun.

    >>> count_of(1, "token"), count_of(2000, "token"), count_of(None, "document")
    ('1 token', '2,000 tokens', 'documents unknown')
    """
    if number is None:
        return f"{noun}s unknown"
    return f"{number:,} {noun}{'s' * (number != 1)}"


def named(name: str, facts: Iterable[str | None], lines: Iterable[str] = ()) -> str:
    """Return Name(fact, fact) and, below it, the lines of its parts.

    >>> print(named("Store", ["native", None, "9 tokens"], ["train: 9 tokens"]))
    Store(native, 9 tokens)
      train: 9 tokens
    """
    head = f"{name}({', '.join(fact for fact in facts if fact)})"
    return "\n  ".join([head, *(line.replace("\n", "\n  ") for line in lines)])


def few(
    items: Sequence[str], noun: str, *, most: int = MOST_LINES, total: int | None = None
) -> list[str]:
    """Return the first of the items and, in place of the others, how many they are.

    >>> few(["a", "b", "c"], "rows", most=2)
    ['a', 'b', '… and 1 more rows']
    """
    more = (len(items) if total is None else total) - most
    return [*items[:most], f"… and {more:,} more {noun}".rstrip()] if more > 0 else [*items]


def table(
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    facts: Sequence[str] = (),
) -> str:
    """Return a title, facts and a table in HTML, as a notebook shows them."""
    from tokenreel.display.notebook import card, table_html  # workers show nothing

    return card(title, table_html(head, rows), facts=facts)
