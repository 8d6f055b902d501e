"""The public checker finds every way in which a stream can resume wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tokenreel.testing import check_resume, equal


class Counter:
    """A stream that resumes as it should."""

    def __init__(self) -> None:
        self.n = 0

    def __iter__(self) -> Iterator[Any]:
        while self.n < 8:
            self.n += 1
            yield {"x": np.arange(self.n)}

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n = state["n"]


class OneOff(Counter):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n = max(state["n"] - 1, 0)


class Forgetful(Counter):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Adding(Counter):
    """Loading twice is not loading once."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n += state["n"]


class Ahead(Counter):
    """The state is that of the producer, not of the consumer."""

    def __iter__(self) -> Iterator[Any]:
        while self.n < 8:
            self.n += 2
            yield self.n - 2
            yield self.n - 1


class Lazy(Counter):
    """Right only when the first item was taken before the state is saved again."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded = 0

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n - self.loaded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n = self.loaded = state["n"]


def test_a_stream_that_resumes_passes() -> None:
    check_resume(Counter, steps=5)


def test_restoring_at_the_very_end_is_checked() -> None:
    check_resume(Counter, steps=8)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (OneOff, "state changed by loading it at step 1"),
        (Forgetful, "state changed by loading it at step 1"),
        (Adding, "restored twice at step 1"),
        (Ahead, "restored at step 1"),
        (Lazy, "state changed by loading it at step 1"),
    ],
)
def test_a_stream_that_does_not_resume_is_told_where(kind: type[Counter], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_resume(kind, steps=5)


class Early(Counter):
    """Ends one item early after it was restored at the end of its stream."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if self.n == 8:
            self.n = 7

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n}


def test_a_stream_restored_at_its_end_must_have_ended() -> None:
    with pytest.raises(AssertionError, match="at step 8"):
        check_resume(Early, steps=8)


class Reusing(Counter):
    """Hands out one and the same array, filled anew: no fault of resuming."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = np.zeros(3)

    def __iter__(self) -> Iterator[Any]:
        for n in range(self.n, 8):
            self.memory.fill(n)
            self.n = n + 1
            yield self.memory


def test_memory_may_be_used_again() -> None:
    check_resume(Reusing, steps=5)


def test_a_stream_that_is_too_short_is_told_so() -> None:
    with pytest.raises(AssertionError, match="the stream ends after 8 items"):
        check_resume(Counter, steps=9)


@dataclass
class Pair:
    x: np.ndarray
    y: Any


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.arange(3), np.arange(3), True),
        (np.arange(3), np.arange(3).astype(np.int32), False),
        (np.arange(3), np.arange(4), False),
        (np.arange(3), [0, 1, 2], True),
        (Pair(np.zeros(2), 1), Pair(np.zeros(2), 1), True),
        (Pair(np.zeros(2), 1), Pair(np.ones(2), 1), False),
        ({"a": np.zeros(1)}, {"a": np.zeros(1)}, True),
        ({"a": np.zeros(1)}, {"b": np.zeros(1)}, False),
        ([np.zeros(1), 2], (np.zeros(1), 2), True),
        ([1, 2], [1, 2, 3], False),
        (1.0, 1.0, True),
        ("a", "b", False),
        (np.array([np.nan]), np.array([np.nan]), True),
    ],
)
def test_batches_are_equal_when_every_array_is(one: Any, other: Any, same: bool) -> None:
    assert equal(one, other) is same
    assert equal(other, one) is same
