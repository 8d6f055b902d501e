"""What one rendering of a chat template may use: steps, seconds, characters and items.

A thread that renders cannot be ended from outside, so the template itself is made to ask:
- every turn of a loop, every call and every filter is a step; steps are counted (MAX_STEPS) and
  timed (MAX_SECONDS), about 0.1 microseconds each; recursion ends at Python's limit;
- no text, list or number is made that is larger than `max_characters`: 16 times the characters
  of the chat and 200,000 more, which is beyond what any template of a model writes;
- a container is measured before it is written, compared or hashed, each item as often as it
  occurs: `[x, x]` forty times over is small to make and endless to write;
- all that is made in one rendering is added up, to at most 64 times `max_characters`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Any

import jinja2
from jinja2.utils import markupsafe

from tokenreel.text.chats.jinja_shadows import FIELD

MAX_STEPS = 1_000_000
MAX_SECONDS = 20.0
MAX_BITS = 4096
MAX_WIDTH = 10_000
FREE_CHARACTERS = 200_000
CHARACTERS_PER_CHARACTER = 16
MAX_SUM = 64  # of max_characters
_BYTES_PER_ITEM = 8

_CONTAINERS: Any = (list, tuple, dict, range, KeysView, ValuesView, ItemsView)
_WIDE = re.compile(r"\d{5,}|^%.*\*")
_BY_NUMBER = re.compile(r"^%.*c$|:[^{}]*c\}")
_NESTED = re.compile(r"\{[^{}]*\{")


class Unbounded(Exception):
    """A template takes more time or memory than any chat is worth."""


class Budget:
    """What one rendering may still use."""

    def __init__(self) -> None:
        self.renew(0)

    def renew(self, num_characters: int) -> None:
        """Begin a rendering of a chat of this many characters."""
        self.max_characters = FREE_CHARACTERS + CHARACTERS_PER_CHARACTER * num_characters
        self._steps = MAX_STEPS
        self._deadline = time.monotonic() + MAX_SECONDS
        self._left = MAX_SUM * self.max_characters

    def step(self, size: int = 0) -> None:
        """Count a turn of a loop, a call or a filter, and the characters that it writes."""
        if size:
            self.made(size)
        self._steps -= 1
        if self._steps < 0 or (not self._steps & 63 and time.monotonic() > self._deadline):
            raise Unbounded(
                f"it takes more than {MAX_STEPS:,} steps or {MAX_SECONDS:g} seconds for one chat"
            )

    def text(self, num_characters: int) -> None:
        """Refuse to make a text or a list of this length if that is too long."""
        if num_characters > self.max_characters:
            raise Unbounded(
                f"it makes a text or a list of more than {self.max_characters:,} characters or "
                "items"
            )

    def made(self, size: int) -> None:
        """Count so many characters or items as made, or gone through."""
        self._left -= size
        if size > self.max_characters or self._left < 0:
            self.text(size)
            raise Unbounded(
                f"all it makes is more than {MAX_SUM * self.max_characters:,} characters or items"
            )

    def keep(self, value: Any) -> Any:
        """Count a value that was made, and return it."""
        if isinstance(value, (str, bytes)):
            self.made(len(value))
        elif isinstance(value, (list, tuple, dict)):
            self._left -= _BYTES_PER_ITEM * len(value)
            self.made(len(value))
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise Unbounded("it computes a number that is too large")
        return value

    def size(self, value: Any, see: Callable[[str], None]) -> int:
        """Return how many characters and items a value is written with, and count them as made.

        Items count as often as they occur. `see` is called with every text. What would be
        written with an address in memory, other each time, is refused.
        """
        total = 0
        rest: list[Any] = [value]
        while rest:
            item = rest.pop()
            if isinstance(item, str):
                total += len(item) + 1
                see(item)
            elif isinstance(item, _CONTAINERS):
                total += len(item) + 1
                self.text(total)
                rest.extend(item)
                if isinstance(item, dict):
                    rest.extend(item.values())
            elif item is None or isinstance(item, (int, float, jinja2.Undefined)):
                total += 1
            else:
                raise Unbounded(
                    f"it writes or compares a {type(item).__name__}, which is no text, number, "
                    "list or object"
                )
        self.made(total)
        return total


def check_width(budget: Budget, _: Any, *sizes: Any) -> None:
    """Refuse to pad, cut or round to a number of characters or digits that is too large."""
    for size in sizes:
        if isinstance(size, int) and abs(size) > MAX_WIDTH:
            raise Unbounded(f"it asks for {size:,} characters or items at once")


def check_indent(budget: Budget, text: Any, *widths: Any) -> None:
    """Refuse to write a margin before so many lines."""
    check_width(budget, text, *widths)
    margins = [len(width) if isinstance(width, str) else int(width) for width in widths]
    budget.text((str(text).count("\n") + 1) * max(margins, default=4))


def check_format(budget: Budget, pattern: Any, largest: int) -> None:
    """Refuse a pattern that may write too much with arguments of this size."""
    if not isinstance(pattern, str):
        return
    fields = FIELD.findall(pattern)
    unescaped = pattern.replace("{{", "").replace("}}", "")
    if any(map(_WIDE.search, fields)) or _NESTED.search(unescaped):
        raise Unbounded("it formats text to a width that is too large, or not stated")
    if any(map(_BY_NUMBER.search, fields)):
        raise Unbounded("it writes characters by their numbers")
    widths = [int(width) for field in fields for width in re.findall(r"\d+", field)]
    budget.text(len(pattern) + len(fields) * (largest + max(widths, default=0)))


def check_replace(budget: Budget, text: str, old: Any, new: Any = "") -> None:
    """Refuse a replacement that makes a text too long."""
    if isinstance(old, str) and isinstance(new, str) and len(new) > len(old):
        budget.text(len(text) + text.count(old) * (len(new) - len(old)))


def check_product(budget: Budget, sign: str, left: Any, right: Any) -> None:
    """Refuse a product or power that is too large."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if (bits + right.bit_length() if sign == "*" else bits * abs(right)) > MAX_BITS:
            raise Unbounded("it computes a number that is too large")
        return
    for value, times in ((left, right), (right, left)):
        if sign == "*" and isinstance(times, int) and hasattr(value, "__len__"):
            budget.text(len(value) * max(0, times))


def is_escaped(value: object) -> bool:
    """Tell whether a value is a text that was marked as HTML."""
    return isinstance(value, markupsafe.Markup)
