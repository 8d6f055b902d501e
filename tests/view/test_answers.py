"""Every question is answered, or refused in words: whatever its numbers, names and parameters."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.view.looking import opened

from tokenreel.errors import ConfigError
from tokenreel.view.answers import QUESTIONS, Answers, NoAnswerError
from tokenreel.view.parameters import MOST_NUMBER, Parameters, whole_number

PATHS = [
    "api/target",
    "api/reel",
    "api/step/{}",
    "api/step/{}/row/{}",
    "api/step/{}/row/{}/segments",
    "api/step/{}/rows",
    "api/document/{}/{}",
    "api/where/{}/{}",
    "api/store/{}",
    "api/store/{}/{}/document/{}",
    "api/store/{}/{}/tokens",
    "api/state",
    "api/compare",
    "api/compare/step/{}",
]
NUMBERS = st.one_of(
    st.integers(-3, 70).map(str),
    st.sampled_from(
        ["", "-0", "007", "1e3", "0x1", "½", "٣", "1_000", " 1", "nan", "..", "%2e%2e", "null"]
    ),
    st.integers(-(2**70), 2**70).map(str),
    st.just("9" * 40),
    st.text(max_size=5),
)
NAMES = st.one_of(
    st.sampled_from(["start", "stop", "columns", "slots", "world_size", "target", "q", "source"]),
    st.text(max_size=5),
)


@pytest.fixture(scope="module")
def answers(recipe: Path) -> Answers:
    return opened(recipe, recipe)


def test_the_paths_of_these_tests_are_all_there_are() -> None:
    assert len(QUESTIONS) == len(PATHS)
    for path, question in zip(PATHS, QUESTIONS, strict=True):
        assert question.pattern.fullmatch(path.replace("{}", "0"))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(PATHS),
    numbers=st.lists(NUMBERS, min_size=3, max_size=3),
    query=st.lists(st.tuples(NAMES, NUMBERS), max_size=3),
)
@example(path="api/reel", numbers=["0"] * 3, query=[("start", "39"), ("stop", str(2**44))])
@example(path="api/step/{}/rows", numbers=["0"] * 3, query=[("stop", "0"), ("slots", "1")])
@example(path="api/step/{}/row/{}", numbers=["0", "0", ""], query=[("start", str(2**53))])
@example(path="api/step/{}", numbers=["9" * 5_000] * 3, query=[])
@example(path="api/compare/step/{}", numbers=[str(2**53)] * 3, query=[])
def test_any_question_is_answered_in_json_or_refused_in_words(
    answers: Answers, path: str, numbers: list[str], query: list[tuple[str, str]]
) -> None:
    try:
        answer = answers.answer(path.format(*numbers), query)
    except NoAnswerError:
        assert any("/" in number for number in numbers)  # which makes another path
    except ConfigError as error:
        assert error.what
        assert error.expected is not None or error.remedy or "twice" in error.what
    else:
        json.dumps(answer, allow_nan=False)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("api/step/-1", "bad step .expected a whole number, 0 to "),
        ("api/step/x", "bad step .expected a whole number"),
        ("api/step/" + "9" * 19, "bad step"),
        ("api/step/40", "the run ends after 40 steps"),
        ("api/step/0/row/6", "no such row in the step"),
        ("api/step/0?world_size=0", "bad world_size"),
        ("api/step/0?world_size=7", "bad world_size"),
        ("api/step/0?world=2", r"unknown parameter 'world'.*did you mean 'world_size'\?"),
        ("api/step/0?world_size=1&world_size=2", "parameter world_size is given twice"),
        ("api/step/0/row/0?start=5&stop=4", "bad stop .expected >= start, 5, got 4"),
        ("api/reel?start=40", "bad stop .expected > start, 40"),
        ("api/reel?columns=2001", "bad columns"),
        ("api/reel?start=1&stop=1", "bad stop .expected > start, 1"),
        ("api/target?target=2", "bad target .expected a whole number, 0 to 1"),
    ],
)
def test_wrong_numbers_are_told_with_what_was_expected(
    answers: Answers, question: str, told: str
) -> None:
    path, _, query = question.partition("?")
    with pytest.raises(ConfigError, match=told):
        answers.answer(path, parse_qsl(query, keep_blank_values=True))


@pytest.mark.parametrize("path", ["", "api", "api/", "api/steps/1", "api/step/1/", "API/target"])
def test_there_is_no_other_question(answers: Answers, path: str) -> None:
    with pytest.raises(NoAnswerError):
        answers.answer(path)


def test_ranges_are_clipped_and_say_so(answers: Answers) -> None:
    row = answers.answer("api/step/0/row/0", [("start", "60"), ("stop", "4096")])
    assert (row["start"], row["stop"], len(row["ids"])) == (60, 64, 4)
    behind = answers.answer("api/step/0/row/0", [("start", "900"), ("stop", "901")])
    assert (behind["start"], behind["stop"], behind["ids"]) == (64, 64, [])
    rows = answers.answer("api/step/0/rows", [("start", "4"), ("stop", "99")])
    assert [row["row"] for row in rows] == [4, 5]


@given(st.integers(0, MOST_NUMBER))
def test_whole_numbers_are_read_as_they_are_written(number: int) -> None:
    assert whole_number(str(number), "n") == number
    assert Parameters([("n", str(number))], known=["n"]).number("n", 0) == number
