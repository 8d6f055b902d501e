"""What differs between the batches that two feeds make of a step, row by row and field by field.

Rows are those of the global step, in their seats: microbatches and ranks only cut them. Sources are
compared by name, since their numbers depend on the order in which a recipe lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.trace import check_number
from tokenreel.inspect.unchanged import Pairing, pair_sources

SLOTS = ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids")
SLOTS_AT_ONCE = 2**20  # some 60 MB for both sides
GROUPS = ("group_ids", "answer_labels")  # where some rows are pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingField:
    """A field of a row: the first slot that differs, how many do, and both values there.

    Of a field that a row has once, its source or its record, the slot is None.
    """

    first_slot: int | None
    num_slots: int
    a: Any
    b: Any

    def as_dict(self) -> dict[str, Any]:
        """Return the difference, ready for JSON."""
        slots = {"first_slot": self.first_slot, "num_slots": self.num_slots}
        return {**slots, "a": self.a, "b": self.b}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowComparison:
    """One row of a step; `sources` are the names on both sides, None for a row that is padding."""

    row: int
    sources: tuple[str | None, str | None]
    differing: Mapping[str, DifferingField]

    @property
    def is_same(self) -> bool:
        """Whether no field differs."""
        return not self.differing

    @property
    def first_slot(self) -> int | None:
        """The first slot in which a field differs; None where none does."""
        slots = [item.first_slot for item in self.differing.values() if item.first_slot is not None]
        return min(slots, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return the row, ready for JSON."""
        return {
            "row": self.row,
            "same": self.is_same,
            "first_slot": self.first_slot,
            "fields": list(self.differing),
            "differing": {name: item.as_dict() for name, item in self.differing.items()},
            "sources": list(self.sources),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StepComparison:
    """All rows of a step; `why` says what keeps batches from being compared row by row."""

    step: int
    rows: Sequence[RowComparison]
    why: str | None = None

    @property
    def is_same(self) -> bool:
        """Whether both feeds make the same batch of the step."""
        return self.why is None and all(row.is_same for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the step, ready for JSON."""
        rows = [row.as_dict() for row in self.rows]
        return {"step": self.step, "same": self.is_same, "why": self.why, "rows": rows}


def compare_step(a: Feed, b: Feed, step: int) -> StepComparison:
    """Compare the batches that two feeds make of a step, all rows of it, some rows at a time.

    A step that neither feed has is refused as `feed.batch` refuses it.
    """
    check_number(step)
    why = shapes_differ(a, b) or ends_before(a, b, step)
    if why is not None:
        return StepComparison(step=step, rows=[], why=why)
    extra, size = wanted_extra(a, b), a.recipe.global_batch_size
    counts = [feed.deal.num_rows_in(step) for feed in (a, b)]
    # Whole where groups are numbered through the batch, or rows only fill it up in one of them.
    is_whole = GROUPS[0] in extra or counts[0] != counts[1]
    at_once = size if is_whole else max(SLOTS_AT_ONCE // a.recipe.seq_len, 1)
    if is_whole or counts[0] <= at_once:
        one, other = a.batch(step, extra=extra), b.batch(step, extra=extra)
        return StepComparison(step=step, rows=compare_rows(a, b, one, other))
    rows: list[RowComparison] = []
    for start in range(0, counts[0], at_once):
        seats = np.arange(start, min(start + at_once, counts[0]))
        one, other = a.rows(step, seats, extra=extra), b.rows(step, seats, extra=extra)
        rows += compare_rows(a, b, one, other, first=start)
    filling = range(counts[0], size)
    rows += [RowComparison(row=row, sources=(None, None), differing={}) for row in filling]
    return StepComparison(step=step, rows=rows)


def shapes_differ(a: Feed, b: Feed) -> str | None:
    """Say how the shapes of global batches differ; None if they do not."""
    shapes = [(feed.recipe.global_batch_size, feed.recipe.seq_len) for feed in (a, b)]
    if shapes[0] == shapes[1]:
        return None
    one, other = (f"{rows:,} rows of {slots:,} tokens" for rows, slots in shapes)
    return f"the batches have other shapes: {one} against {other}"


def ends_before(a: Feed, b: Feed, step: int) -> str | None:
    """Say which of two feeds has no such step, if the other has it."""
    has_step = [feed.ending is None or step < feed.ending.steps for feed in (a, b)]
    if has_step[0] == has_step[1]:
        return None
    ended = b if has_step[0] else a
    return f"only the {'first' if has_step[0] else 'second'} has step {step:,}: {ended.ending}"


def wanted_extra(a: Feed, b: Feed) -> tuple[str, ...]:
    """Return the fields that are made on request alone and matter to these feeds."""
    kinds = {source.rows for feed in (a, b) for source in feed.recipe.sources}
    return (*(GROUPS if "pairs" in kinds else ()), *(("records",) if "prompts" in kinds else ()))


def compare_rows(
    a: Feed, b: Feed, one: Batch, other: Batch, *, first: int = 0
) -> list[RowComparison]:
    """Compare two batches of as many rows, row by row; the first has this number."""
    pairing, seq_len = pair_sources(a, b), a.recipe.seq_len
    names = [*(source.name for source in a.recipe.sources), None]
    others = [*(source.name for source in b.recipe.sources), None]
    unequal = _unequal_slots(one, other, seq_len)
    mine, its = one.source_ids.reshape(-1), other.source_ids.reshape(-1)
    rows = []
    for row in range(len(mine)):
        sources = names[mine[row]], others[its[row]]
        differing = {
            name: _differing(_rows(one, name, seq_len)[row], _rows(other, name, seq_len)[row])
            for name in unequal
            if unequal[name][row]
        }
        if mine[row] != pairing.number_in_a[its[row]]:
            differing["source"] = _whole(*sources)
        records = [_flat(batch.records)[row] if batch.records else None for batch in (one, other)]
        if records[0] != records[1]:
            differing["records"] = _whole(*records)
        rows.append(RowComparison(row=first + row, sources=sources, differing=differing))
    return rows


def unequal_rows(one: Batch, other: Batch, pairing: Pairing) -> np.ndarray:
    """Tell which rows of two batches differ in any field, bool [rows]."""
    seq_len = one.input_ids.shape[-1]
    first, second = one.source_ids.reshape(-1), other.source_ids.reshape(-1)
    found = first != pairing.number_in_a[second]
    for unequal in _unequal_slots(one, other, seq_len).values():
        found = found | unequal
    if one.records or other.records:
        both = zip(_flat(one.records), _flat(other.records), strict=True)
        found = found | np.array([mine != its for mine, its in both], bool)
    return found


def _unequal_slots(one: Batch, other: Batch, seq_len: int) -> dict[str, np.ndarray]:
    """Return for each field of slots which rows differ in it, bool [rows]."""
    named = [*SLOTS, *(name for name in GROUPS if getattr(one, name) is not None)]
    return {
        name: (_rows(one, name, seq_len) != _rows(other, name, seq_len)).any(axis=1)
        for name in named
    }


def _rows(batch: Batch, name: str, seq_len: int) -> np.ndarray:
    values: np.ndarray = getattr(batch, name)
    return values.reshape(-1, seq_len)


def _flat(records: list[Any] | None) -> list[Any]:
    """Return the records of all rows, whether or not they are parted into microbatches."""
    parts = records or []
    return [item for part in parts for item in (part if isinstance(part, list) else [part])]


def _differing(one: np.ndarray, other: np.ndarray) -> DifferingField:
    slots = np.flatnonzero(one != other)
    at = int(slots[0])
    return DifferingField(first_slot=at, num_slots=len(slots), a=one[at].item(), b=other[at].item())


def _whole(a: Any, b: Any) -> DifferingField:
    return DifferingField(first_slot=None, num_slots=0, a=a, b=b)
