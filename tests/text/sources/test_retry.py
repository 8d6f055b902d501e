"""Retries go on at the exact record: nothing twice, nothing lost, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import ConfigError, InputError
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.record import Bad, Record, bad_record
from tokenreel.text.sources.retry import Backoff, attempt, is_passing, retrying
from tokenreel.text.sources.source_protocol import Cursor, Reader, Step


class Flaky:
    """A source of `length` numbered records that fails before some of them, so many times."""

    def __init__(self, length: int, failures: dict[int, int]) -> None:
        self.length = length
        self.failures = dict(failures)
        self.opened: list[int] = []

    def steps(self, cursor: Cursor | None) -> Iterator[Step]:
        first = 0 if cursor is None else cursor["row"]
        self.opened.append(first)
        for row in range(first, self.length + 1):
            if self.failures.get(row):
                self.failures[row] -= 1
                raise ConnectionResetError(f"cut before {row}")
            if row < self.length:
                yield self._item(row), {"row": row + 1}

    def _item(self, row: int) -> Record | Bad:
        place = Provenance(row=row)
        if row % 5 == 4:
            return bad_record("bad", place, remedy="none")
        return Record(text=str(row), provenance=place)


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 3), max_size=8))
def test_any_pattern_of_failures_gives_the_records_of_none(failures: dict[int, int]) -> None:
    source, waits = Flaky(20, failures), []  # type: ignore[var-annotated]
    steps = retrying(source.steps, backoff=Backoff(max_retries=3), sleep=waits.append)
    reader = Reader(steps, cursor=None, on_bad="skip")
    assert [record.text for record in reader] == [str(n) for n in range(20) if n % 5 != 4]
    assert reader.skipped.count == 4
    assert len(waits) == sum(failures.values())


def test_it_waits_longer_each_time_and_starts_anew_after_a_record() -> None:
    source, waits = Flaky(4, {1: 4, 2: 1}), []  # type: ignore[var-annotated]
    backoff = Backoff(max_retries=4, retry_delay=0.5, max_retry_delay=3)
    list(retrying(source.steps, backoff=backoff, sleep=waits.append))
    assert waits == [0.5, 1.0, 2.0, 3, 0.5]
    assert source.opened == [0, 1, 1, 1, 1, 2]


def test_attempts_are_limited_and_the_cause_is_kept() -> None:
    source, waits = Flaky(4, {2: 99}), []  # type: ignore[var-annotated]
    steps = retrying(source.steps, backoff=Backoff(max_retries=2), where="hub", sleep=waits.append)
    assert [next(steps)[1]["row"] for _ in range(2)] == [1, 2]
    with pytest.raises(InputError) as caught:
        next(steps)
    assert str(caught.value) == (
        "hub: reading failed 3 times in a row: ConnectionResetError: cut before 2; "
        "check the connection and start again, or raise max_retries"
    )
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert len(waits) == 2


@pytest.mark.parametrize(
    "error", [FileNotFoundError(), InputError("bad"), ValueError(), KeyError()]
)
def test_what_will_not_pass_is_raised_at_once(error: Exception) -> None:
    def steps(cursor: Cursor | None) -> Iterator[Step]:
        raise error

    with pytest.raises(type(error)):
        list(retrying(steps, sleep=lambda seconds: pytest.fail("waited")))


def test_http_statuses_decide_what_passes() -> None:
    class Answer:
        def __init__(self, status_code: int) -> None:
            self.status_code = status_code

    class HTTPError(OSError):
        def __init__(self, status_code: int) -> None:
            self.response = Answer(status_code)

    passing = [
        status for status in (400, 401, 404, 408, 429, 500, 503) if is_passing(HTTPError(status))
    ]
    assert passing == [408, 429, 500, 503]


def test_a_wrapped_failure_passes_if_its_cause_does() -> None:
    wrapped, lasting = RuntimeError("generation failed"), RuntimeError("generation failed")
    wrapped.__cause__, lasting.__cause__ = ConnectionResetError(), ValueError()
    assert is_passing(wrapped) and not is_passing(lasting)


def test_a_call_is_made_again_until_it_answers() -> None:
    answers = iter([TimeoutError(), ConnectionError(), None])
    waits: list[float] = []

    def call() -> str:
        if error := next(answers):
            raise error
        return "here"

    assert attempt(call, sleep=waits.append) == "here"
    assert waits == [1.0, 2.0]


def test_a_call_that_never_answers_is_given_up() -> None:
    def call() -> None:
        raise TimeoutError("slow")

    with pytest.raises(InputError, match="failed 2 times in a row: TimeoutError: slow"):
        attempt(call, backoff=Backoff(max_retries=1), sleep=lambda seconds: None)


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"bad max_retries \(expected >= 0, got -1\)"):
        Backoff(max_retries=-1)
