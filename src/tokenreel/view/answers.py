"""Every question of the page and its answer, whoever brings them: the server, or an export.

A question is a path and its parameters: `api/step/57` and `world_size=2`. Numbers are checked
here, so that the modules of facts get what they can compute with; whatever is wrong in a question
is a ConfigError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.order.schedule import MAX_TIME
from tokenreel.view.batch_facts import step_facts
from tokenreel.view.compared import Compared
from tokenreel.view.document_facts import document_facts, source_split, token_facts
from tokenreel.view.find_documents import find_documents
from tokenreel.view.parameters import Parameters, whole_number
from tokenreel.view.row_facts import LARGEST_PAINT, row_facts, row_segments, rows_facts
from tokenreel.view.run_facts import reel_facts, reel_stop, target_facts
from tokenreel.view.showings import where_facts
from tokenreel.view.state_facts import state_facts
from tokenreel.view.store_pages import split_of, store_facts
from tokenreel.view.subject import Subject

MOST_COLUMNS = 2_000
MOST_ROWS = 64
MOST_QUERY = 1_000  # characters of what is searched for
SHOWN_SLOTS = 4_096  # if a question does not say how many
PAINTED_ROWS, PAINTED_SLOTS = 12, 400

Numbers = Mapping[str, int]
Answer = Callable[["Answers", Subject, Numbers, Parameters], Any]


class NoAnswerError(Exception):
    """There is no such question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    pattern: re.Pattern[str]
    known: tuple[str, ...]
    answer: Answer


class Answers:
    """What there is to say of one subject, or of two that are compared."""

    def __init__(self, subjects: Sequence[Subject], *, first_step: int = 0) -> None:
        self.subjects, self.first_step = tuple(subjects), first_step
        self.compared = Compared(subjects)

    def answer(self, path: str, query: Iterable[tuple[str, str]] = ()) -> Any:
        """Return the answer, ready for JSON; NoAnswerError if there is no such question."""
        for question in QUESTIONS:
            found = question.pattern.fullmatch(path)
            if found is not None:
                asked = Parameters(query, known=("target", *question.known))
                numbers = {
                    name: whole_number(text, name) for name, text in found.groupdict().items()
                }
                return question.answer(self, self.subject(asked), numbers, asked)
        raise NoAnswerError(path)

    def subject(self, asked: Parameters) -> Subject:
        """Return the subject that a question is about: the first, unless it says target=1."""
        return self.subjects[asked.number("target", 0, most=len(self.subjects) - 1)]

    def search(self, query: Iterable[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        """Return the documents that a search finds, one by one, with its progress between them."""
        asked = Parameters(query, known=("target", "q", "source", "store"))
        subject, text = self.subject(asked), asked.text("q", "", most=MOST_QUERY)
        if not text.strip():
            raise ConfigError("nothing to search for", expected="q=…")
        source, store = (
            asked.number(name, -1, least=0, most=10**6) for name in ("source", "store")
        )
        return find_documents(
            subject,
            text,
            source=None if source < 0 else source,
            store=None if store < 0 else store,
        )


def _target(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    number = asked.number("target", 0)
    return target_facts(answers.subjects, number) | {"first_step": answers.first_step}


def _reel(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    feed = subject.feed
    most = _most_steps(feed)
    start = asked.number("start", 0, most=most - 1)
    stop = asked.number("stop", max(reel_stop(feed), start + 1), most=most)
    stop = stop if feed.num_steps is None else min(stop, feed.num_steps)
    if stop <= start:
        raise ConfigError("bad stop", expected=f"> start, {start:,}", actual=stop)
    columns = asked.number("columns", 600, least=1, most=MOST_COLUMNS)
    return reel_facts(feed, start=start, stop=stop, columns=columns)


def _most_steps(feed: Feed) -> int:
    return int(MAX_TIME) // feed.recipe.global_batch_size


def _step(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    most = subject.feed.recipe.global_batch_size
    world_size = asked.number("world_size", 1, least=1, most=most)
    return step_facts(subject.feed, numbers["step"], world_size=world_size)


def _row(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    start, stop = _range(asked)
    return row_facts(subject, numbers["step"], numbers["row"], start=start, stop=stop)


def _segments(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    return row_segments(subject, numbers["step"], numbers["row"])


def _rows(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    most = subject.feed.recipe.global_batch_size
    start = asked.number("start", 0, most=most - 1)
    stop = min(asked.number("stop", start + PAINTED_ROWS), most, start + MOST_ROWS)
    slots = asked.number("slots", PAINTED_SLOTS, least=1, most=LARGEST_PAINT)
    rows = range(start, stop)
    slots = min(slots, LARGEST_PAINT // max(len(rows), 1))
    return rows_facts(subject, numbers["step"], rows, stop=slots)


def _range(asked: Parameters) -> tuple[int, int]:
    start = asked.number("start", 0)
    stop = asked.number("stop", start + SHOWN_SLOTS)
    if stop < start:
        raise ConfigError("bad stop", expected=f">= start, {start:,}", actual=stop)
    return start, stop


def _document(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    start, stop = _range(asked)
    source = numbers["source"]
    split = source_split(subject, source)
    found = document_facts(subject, source, split, numbers["document"], start=start, stop=stop)
    return {"source": source, **found}


def _where(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    start = asked.number("start", 0, most=_most_steps(subject.feed) - 1)
    return where_facts(subject, numbers["source"], numbers["document"], start=start)


def _store(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    return store_facts(subject, numbers["store"])


def _stored(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    start, stop = _range(asked)
    store = numbers["store"]
    split = split_of(subject.store(store), numbers["split"])
    found = document_facts(subject, store, split, numbers["document"], start=start, stop=stop)
    return {"source": None, "store": store, **found}


def _tokens(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    start, stop = _range(asked)
    store = numbers["store"]
    split = split_of(subject.store(store), numbers["split"])
    found = token_facts(subject, store, split, 0, split.num_tokens, start=start, stop=stop)
    return {"store": store, "split": split.name, "tokens": split.num_tokens, **found}


def _state(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    return state_facts(subject)


def _compare(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    return answers.compared.facts()


def _compare_step(answers: Answers, subject: Subject, numbers: Numbers, asked: Parameters) -> Any:
    return answers.compared.step_facts(numbers["step"])


def _question(path: str, answer: Answer, *known: str) -> _Question:
    """Make a question of a path in which {name} stands for a number."""
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]*)", path)
    return _Question(pattern=re.compile(pattern), known=known, answer=answer)


QUESTIONS = (
    _question("api/target", _target),
    _question("api/reel", _reel, "start", "stop", "columns"),
    _question("api/step/{step}", _step, "world_size"),
    _question("api/step/{step}/row/{row}", _row, "start", "stop"),
    _question("api/step/{step}/row/{row}/segments", _segments),
    _question("api/step/{step}/rows", _rows, "start", "stop", "slots"),
    _question("api/document/{source}/{document}", _document, "start", "stop"),
    _question("api/where/{source}/{document}", _where, "start"),
    _question("api/store/{store}", _store),
    _question("api/store/{store}/{split}/document/{document}", _stored, "start", "stop"),
    _question("api/store/{store}/{split}/tokens", _tokens, "start", "stop"),
    _question("api/state", _state),
    _question("api/compare", _compare),
    _question("api/compare/step/{step}", _compare_step),
)
