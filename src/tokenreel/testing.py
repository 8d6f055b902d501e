"""Checks that users can run on what they build with tokenreel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np


class Resumable(Protocol):
    """Something that yields and can be wound to where a state says."""

    def __iter__(self) -> Iterator[Any]:
        """Yield what comes next."""

    def state_dict(self) -> dict[str, Any]:
        """Return where it is."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to where the state says."""


def check_resume(make: Callable[[], Resumable], *, steps: int) -> None:
    """Raise AssertionError unless a stream restored at any of `steps` goes on unchanged.

    Restored at every step and at the end; restored twice; saved again right after a
    restore and after the item that follows it; saved while further items have been
    computed ahead. The stream must have at least `steps` items.

    >>> class Counter:
    ...     def __init__(self): self.n = 0
    ...     def __iter__(self):
    ...         while True:
    ...             self.n += 1
    ...             yield self.n - 1
    ...     def state_dict(self): return {"n": self.n}
    ...     def load_state_dict(self, state): self.n = state["n"]
    >>> check_resume(Counter, steps=5)
    """
    whole = make()
    stream = iter(whole)
    states, expected = [whole.state_dict()], []
    for step in range(steps):
        expected += _take(stream, 1)
        _require(len(expected) > step, f"the stream ends after {step} items")
        states.append(whole.state_dict())
    # What comes after the last state: two more items, or the end of the stream.
    expected += _take(stream, 2)
    for step, state in enumerate(states):
        when = f"restored at step {step}"
        resumed = make()
        resumed.load_state_dict(state)
        _require(resumed.state_dict() == state, f"state changed by loading it at step {step}")
        rest = iter(resumed)
        _require_equal(_take(rest, 1), expected[step : step + 1], when)
        if step < steps:
            _require(resumed.state_dict() == states[step + 1], f"{when}: another state after it")
        remaining = _take(rest, steps + 1 - step)
        _require_equal(remaining, expected[step + 1 :], f"{when}, from the next on")
        again = make()
        for loaded in (states[0], state, state):
            again.load_state_dict(loaded)
        two = _take(iter(again), 2)
        _require_equal(two, expected[step : step + 2], f"restored twice at step {step}")


def _take(stream: Iterator[Any], count: int) -> list[Any]:
    """Return copies of the next items: a stream may use the memory of one for another."""
    return [deepcopy(item) for item in islice(stream, count)]


def _require_equal(actual: list[Any], expected: list[Any], when: str) -> None:
    _require(len(actual) == len(expected), f"{when}: {len(actual)} items, not {len(expected)}")
    for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
        _require(equal(one, other), f"{when}: item {number} differs")


def _require(held: bool, message: str) -> None:
    if not held:
        raise AssertionError(message)


def equal(one: Any, other: Any) -> bool:
    """Compare batches exactly: arrays, mappings, sequences and dataclasses of them."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        same = one.dtype == other.dtype and one.shape == other.shape
        return bool(same and np.ascontiguousarray(one).tobytes() == other.tobytes())
    if is_dataclass(one) and type(one) is type(other):
        compared = [item.name for item in fields(one) if item.compare]
        return all(equal(getattr(one, name), getattr(other, name)) for name in compared)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)
