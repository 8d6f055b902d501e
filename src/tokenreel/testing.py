"""Checks that users can run on what they build with tokenreel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

    Restored at every step; restored twice; saved again right after a restore; saved
    while further items have been computed ahead.

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
    for _ in range(steps):
        expected.append(next(stream))
        states.append(whole.state_dict())
    for step, state in enumerate(states[:-1]):
        resumed = make()
        resumed.load_state_dict(state)
        _require(resumed.state_dict() == state, f"state changed by loading it at step {step}")
        rest = list(islice(iter(resumed), steps - step))
        _require_equal(rest, expected[step:], f"restored at step {step}")
        again = make()
        again.load_state_dict(resumed.state_dict())
        again.load_state_dict(state)
        rest = list(islice(iter(again), min(2, steps - step)))
        _require_equal(rest, expected[step : step + 2], f"restored twice at step {step}")


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
        return np.asarray(one).dtype == np.asarray(other).dtype and np.array_equal(one, other)
    if is_dataclass(one) and type(one) is type(other):
        return all(equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)
