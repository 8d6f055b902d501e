"""What a page is told of one row: its slots, one by one, and what they are made of.

The row is made as the trainer gets it, by itself (feed.rows). What is said of documents, turns
and texts is looked up for the slots that are asked for alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.feed.trace import check_within, pieces_by_document
from tokenreel.rows.row_plan import GroupPlan, RowPlan
from tokenreel.store.split import Split
from tokenreel.text.tokenizers.id_texts import MOST_IDS
from tokenreel.text.turns import LABELS, ROLES, clip_turns
from tokenreel.view.clipped import told_place
from tokenreel.view.subject import Subject
from tokenreel.view.token_texts import token_texts

LARGEST_RANGE = 16_384  # slots in one answer
LARGEST_PAINT = 65_536  # slots in one answer of several rows
SLOTS_AT_ONCE = 1 << 20  # of rows that are made together: some 30 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Slots start to stop of a row: tokens of one document, end to end.

    `position` is where in the split its first token is.
    """

    start: int
    stop: int
    position: int
    document: int | None


def row_facts(
    subject: Subject, step: int, row: int, *, start: int = 0, stop: int | None = None
) -> dict[str, Any]:
    """Return slots start to stop of a row of a step, clipped to those there are."""
    return rows_facts(subject, step, [row], start=start, stop=stop)[0]


def rows_facts(
    subject: Subject, step: int, rows: Sequence[int], *, start: int = 0, stop: int | None = None
) -> list[dict[str, Any]]:
    """Return slots start to stop of some rows of a step; see `row_facts`."""
    feed = subject.feed
    _check_rows(feed, step, rows)
    width, num_rows = feed.recipe.seq_len, feed.deal.num_rows_in(step)
    start = min(start, width)
    stop = min(width if stop is None else stop, width, start + LARGEST_RANGE)
    located = feed.locate(step)
    size = max(SLOTS_AT_ONCE // width, 1)
    answers: list[dict[str, Any]] = []
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        shown = [row for row in some if row < num_rows]
        batch = feed.rows(step, np.array(shown, np.int64))
        for row in some:
            if row >= num_rows:
                answers.append(_filling_row(row, start, max(stop, start), feed.recipe))
                continue
            source, number = int(located.source[row]), int(located.row[row])
            made = _Row(batch, shown.index(row), source=source, number=number)
            facts = made.facts(subject, start, max(stop, start))
            answers.append({"row": row, "epoch": int(located.epoch[row]), **facts})
    return answers


def row_segments(subject: Subject, step: int, row: int) -> dict[str, Any]:
    """Return the segments of a whole row, however wide, without what is in them."""
    feed = subject.feed
    _check_rows(feed, step, [row])
    width, segments = feed.recipe.seq_len, []
    if row < feed.deal.num_rows_in(step):
        located = feed.locate(step)
        source = int(located.source[row])
        plan, numbers = feed.plans[source], feed.rows(step, [row]).segment_ids[0]
        for part in _parts(plan, int(located.row[row]), width):
            place = _place(plan.split, part, source=source)
            segments.append({"number": int(numbers[part.start]), **place})
    return {"row": row, "width": width, "segments": segments}


def _place(split: Split, part: Part, *, source: int) -> dict[str, Any]:
    """Return which slots a part of a row has, and which tokens of which document they show."""
    first = 0 if part.document is None else split.document_span(part.document)[0]
    return {
        "start": part.start,
        "stop": part.stop,
        "source": source,
        "document": part.document,
        "from": part.position - first,
        "to": part.position - first + part.stop - part.start,
    }


def _check_rows(feed: Feed, step: int, rows: Sequence[int]) -> None:
    check_within(feed, step)
    for row in rows:
        if not 0 <= row < feed.recipe.global_batch_size:
            most = feed.recipe.global_batch_size - 1
            raise ConfigError("no such row in the step", expected=f"0 to {most:,}", actual=row)


def _filling_row(row: int, start: int, stop: int, recipe: Recipe) -> dict[str, Any]:
    """Return a row that only fills up the last step of an evaluation: it is all padding."""
    count = stop - start
    return {
        "row": row,
        "epoch": None,
        "source": None,
        "start": start,
        "stop": stop,
        "width": recipe.seq_len,
        "used": 0,
        "lead": 0,
        "ids": [recipe.pad_id] * count,
        "texts": [None] * count,
        "weights": [0.0] * count,
        "controls": [],
        "segments": [],
        "turns": [],
    }


class _Row:
    """One row of a batch, and where it came from."""

    def __init__(self, batch: Batch, at: int, *, source: int, number: int) -> None:
        self.batch, self.at, self.source, self.number = batch, at, source, number
        self.segments, self.positions = batch.segment_ids[at], batch.position_ids[at]
        self.ids = batch.input_ids[at]

    def facts(self, subject: Subject, start: int, stop: int) -> dict[str, Any]:
        feed = subject.feed
        plan = feed.plans[self.source]
        parts = _parts(plan, self.number, len(self.ids))
        reaching = [part for part in parts if part.start < stop and part.stop > start]
        used = int(np.count_nonzero(self.segments))
        texts, controls = self._texts(subject, start, stop)
        return {
            "source": self.source,
            "start": start,
            "stop": stop,
            "width": len(self.ids),
            "used": used,
            "lead": int(np.argmax(self.segments > 0)) if used else 0,
            "ids": self.ids[start:stop].tolist(),
            "texts": texts,
            "weights": self._weights(start, stop).tolist(),
            "controls": controls,
            "segments": [
                self._segment(plan.split, part) | self._answer(plan, part.start)
                for part in reaching
            ],
            "turns": [turn for part in reaching for turn in _turns(plan.split, part, start, stop)],
        }

    def _weights(self, start: int, stop: int) -> np.ndarray:
        """Return how much the model is asked for each token: what its label weighs, float32.

        A token is the label of the slot before it, unless it begins a segment.
        """
        weights = np.zeros(stop - start, np.float32)
        before = self.batch.loss_weights[self.at][max(start - 1, 0) : max(stop - 1, 0)]
        weights[len(weights) - len(before) :] = before
        weights[self.positions[start:stop] == 0] = 0
        return weights

    def _texts(self, subject: Subject, start: int, stop: int) -> tuple[list[str | None], list[int]]:
        """Return the texts of the slots, and the slots of control ids; padding has neither."""
        # Characters may have begun a few slots before, or go on behind.
        low, high = max(start - MOST_IDS, 0), min(stop + MOST_IDS, len(self.ids))
        is_token = self.segments[low:high] > 0
        begins = set(np.flatnonzero(self.positions[low:high] == 0).tolist())
        texts, controls = token_texts(
            subject, self.source, self.ids[low:high].tolist(), begins=begins, is_token=is_token
        )
        inside = [low + place for place in controls if start <= low + place < stop]
        return texts[start - low : stop - low], inside

    def _segment(self, split: Split, part: Part) -> dict[str, Any]:
        return {
            "number": int(self.segments[part.start]),
            **_place(split, part, source=self.source),
            "provenance": told_place(split, part.document),
        }

    def _answer(self, plan: RowPlan, slot: int) -> dict[str, Any]:
        """Return of which group of answers a slot is, from 0 in a row, and what its answer is."""
        groups = self.batch.group_ids
        if groups is None or not isinstance(plan, GroupPlan):
            return {}
        (roles,) = plan.answers(np.array([self.number])).roles()
        return {
            # Groups are counted through the batch, of which only some rows were made.
            "group": int(groups[self.at][slot]) - int(groups[self.at][0]),
            "role_of_answer": roles[int(self.segments[slot]) - 1],
        }


def _parts(plan: RowPlan, number: int, width: int) -> list[Part]:
    """Return what a row is made of, in order; a border of shards alone parts nothing."""
    pieces = pieces_by_document(plan.split, plan.pieces(np.array([number])))
    # Pieces lie end to end, behind the padding in front, if there is such.
    ends = np.cumsum(pieces.length) + (0 if pieces.lead is None else int(pieces.lead[0]))
    position = plan.split.token_starts[pieces.shard] + pieces.start
    goes_on = ~pieces.first
    goes_on[0] = False
    goes_on[1:] &= pieces.document[1:] == pieces.document[:-1]
    goes_on[1:] &= position[1:] == (position + pieces.length)[:-1]
    begins = np.flatnonzero(~goes_on)
    stops = ends[np.append(begins[1:], len(ends)) - 1]
    starts = ends[begins] - pieces.length[begins]
    columns = (starts, np.minimum(stops, width), position[begins], pieces.document[begins])
    return [
        Part(start=start, stop=stop, position=at, document=None if document < 0 else document)
        for start, stop, at, document in zip(*(c.tolist() for c in columns), strict=True)
        if start < width  # the last token of a row is a label alone
    ]


def _turns(split: Split, part: Part, start: int, stop: int) -> list[dict[str, Any]]:
    """Return the turns of a part of a row that reach into slots start to stop, cut there."""
    if part.document is None or not split.has_turns:
        return []
    first, last = split.document_span(part.document)
    turns = split.turns_between(first, last)
    begin = part.position + max(start - part.start, 0)
    end = part.position + min(stop, part.stop) - part.start
    slot = part.start + begin - part.position
    return told_turns(clip_turns(turns, begin, stop=end), offset=slot)


def told_turns(turns: np.ndarray, *, offset: int = 0) -> list[dict[str, Any]]:
    """Return turns (TURN) ready for JSON: role, tokens and weight; starts count from `offset`."""
    told = []
    for turn in turns:
        code, label = int(turn["role"]), int(turn["label"])
        begin = offset + int(turn["start"])
        facts: dict[str, Any] = {
            "role": ROLES[code] if code < len(ROLES) else f"role {code}",
            "start": begin,
            "stop": begin + int(turn["length"]),
            "weight": float(turn["weight"]),
        }
        if 0 < label < len(LABELS):
            facts["label"] = LABELS[label]
        told.append(facts)
    return told
