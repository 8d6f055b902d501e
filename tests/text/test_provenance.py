"""Errors of a batch name its documents, once for builds and streams."""

from __future__ import annotations

import pytest

from tokenreel.errors import InputError, MismatchError, WorkerError
from tokenreel.text.provenance import Provenance, located, name_span

FIRST, LAST = Provenance(file="a.jsonl", row=0), Provenance(file="a.jsonl", row=6)
WHERE = "a.jsonl:1 to a.jsonl:7"


def raised(error: BaseException) -> BaseException:
    with (
        pytest.raises(type(error)) as caught,
        located(lambda: name_span(FIRST, LAST), remedy="run it again"),
    ):
        raise error
    return caught.value


def test_one_document_is_named_alone() -> None:
    assert name_span(FIRST, FIRST) == "a.jsonl:1"
    assert name_span(FIRST, LAST) == WHERE


def test_an_input_error_without_a_place_gets_one_and_keeps_its_parts() -> None:
    error = raised(InputError("a lone surrogate", expected="text", actual="bytes", remedy="fix"))
    assert str(error) == f"{WHERE}: a lone surrogate (expected text, got bytes); fix"


@pytest.mark.parametrize(
    "error",
    [
        InputError("wrong", where="b.jsonl:3"),
        MismatchError("two ids", differing={"ids": (1, 2)}),
        KeyboardInterrupt(),
    ],
)
def test_what_names_its_place_or_is_no_failure_of_a_document_passes_through(
    error: BaseException,
) -> None:
    assert raised(error) is error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("boom"), "encoding failed: RuntimeError: boom"),
        (MemoryError(), "out of memory: MemoryError"),
    ],
)
def test_other_errors_become_worker_errors_with_the_remedy(error: Exception, said: str) -> None:
    with (
        pytest.raises(WorkerError) as caught,
        located(lambda: WHERE, remedy="run it again"),
    ):
        raise error
    assert str(caught.value) == f"{WHERE}: {said}; run it again"
    assert caught.value.__cause__ is error
