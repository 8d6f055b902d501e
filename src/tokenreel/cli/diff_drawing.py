"""The comparison of two recipes, states or stores, as a person reads it.

What a store or a state says is written with its control characters made visible: no name and no
text of a document can command the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from tokenreel.cli.output import printable
from tokenreel.inspect.comparison import Comparison
from tokenreel.inspect.differences import Difference
from tokenreel.inspect.row_context import Decode, RowSide, Sides
from tokenreel.inspect.step_comparison import RowComparison, StepComparison
from tokenreel.inspect.store_comparison import Side, SplitComparison
from tokenreel.inspect.targets import Target, kind_of
from tokenreel.store.store import Store

MOST_FIELDS = 24
MOST_ROWS = 4
MOST_CHARACTERS = 72
HEX_CHARACTERS = 16
KINDS = {"feed_state": "state of a feed", "stream_state": "state of a stream"}
MARKS = ("A", "B")
STYLES = ("red", "green")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """All that is drawn; `is_asked`: the step is one that was asked for."""

    titles: tuple[str, str]
    targets: tuple[Target, Target]
    comparison: Comparison
    is_asked: bool
    step: StepComparison | None
    sides: Mapping[int, Sides]
    decode: Decode


def draw(console: Console, shown: Shown) -> None:
    """Draw the verdict, the fields that differ, and the first difference."""
    for mark, style, title, target in zip(MARKS, STYLES, shown.titles, shown.targets, strict=True):
        kind = KINDS.get(kind_of(target), kind_of(target))
        _line(console, f"{mark} {title} ({kind})", style=style)
    found = shown.comparison
    if not shown.is_asked:
        further = "" if found.search is None or found.search.is_complete else "; --steps goes on"
        _line(console, f"{found.why}{further}", style="bold")
    _draw_fields(console, "differs, and belongs to the identity", found.differences.identity)
    # How a store was built decides its tokens, and stands beside its identity all the same.
    beside = (
        "differs, beside the identity" if found.kind == "stores" else "differs, and alters no batch"
    )
    _draw_fields(console, beside, found.differences.others)
    for note in found.notes:
        _line(console, f"note: {note}", style="dim")
    for split in found.splits:
        _draw_split(console, split, shown)
    if shown.step is not None:
        _draw_step(console, shown.step, shown.sides)


def _line(console: Console, text: str, *, style: str | None = None) -> None:
    console.print(printable(text).replace("\n", "\\n"), markup=False, style=style)


def _draw_fields(console: Console, head: str, differences: Sequence[Difference]) -> None:
    if not differences:
        return
    _line(console, f"{head}:", style="bold")
    shown = differences[:MOST_FIELDS]
    width = min(max(len(item.field) for item in shown), 40)
    for item in shown:
        _line(console, f"  {item.field:<{width}}  {_told(item.a)} → {_told(item.b)}")
    if len(differences) > len(shown):
        _line(console, f"  … and {len(differences) - len(shown):,} more: --json lists all")


def _told(value: Any) -> str:
    """Return a value in a few characters; a fingerprint by its beginning."""
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return f"{text[:HEX_CHARACTERS]}…"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _draw_step(console: Console, step: StepComparison, sides: Mapping[int, Sides]) -> None:
    differing = [row for row in step.rows if not row.is_same]
    if step.why is not None:
        _line(console, f"step {step.step:,}: {step.why}", style="bold")
        return
    if not differing:
        _line(console, f"step {step.step:,}: the same in all {len(step.rows):,} rows", style="bold")
        return
    rows = f"{len(differing):,} of {len(step.rows):,} rows differ"
    _line(console, f"step {step.step:,}: {rows}", style="bold")
    for row in differing[:MOST_ROWS]:
        _draw_row(console, row, sides[row.row])
    if len(differing) > MOST_ROWS:
        _line(console, f"  … and {len(differing) - MOST_ROWS:,} more of them: --json has all")


def _draw_row(console: Console, row: RowComparison, sides: Sides) -> None:
    at = "" if row.first_slot is None else f" from slot {row.first_slot:,} on"
    _line(console, f"  row {row.row}: {', '.join(row.differing)} differ{at}")
    for mark, style, source, side in zip(MARKS, STYLES, row.sources, sides, strict=True):
        if side is None:
            _line(console, f"    {mark} padding", style=style)
            continue
        _line(console, f"    {mark} {source}, {_told_place(side)}", style=style)
        _line(console, f"      {_content(side.text, side.ids)}", style=style)
    if row.first_slot is None:
        return
    values = (
        f"{name} {item.a} → {item.b}"
        for name, item in row.differing.items()
        if item.first_slot == row.first_slot
    )
    _line(console, f"    at slot {row.first_slot:,}: {', '.join(values)}", style="dim")


def _told_place(side: RowSide) -> str:
    segment = side.segment
    if segment is None:
        return f"epoch {side.epoch}, padding at this slot"
    name = "documents unknown" if segment.document is None else f"document {segment.document:,}"
    origin = f" · {segment.provenance}" if segment.provenance else ""
    return f"epoch {side.epoch}, {name}, tokens {segment.start:,}–{segment.stop:,}{origin}"


def _content(text: str | None, ids: Sequence[int]) -> str:
    """Return the text as a literal, or the ids where no tokenizer is at hand."""
    if text is not None:
        return repr(text)
    return " ".join(map(str, ids)) if ids else "nothing"


def _draw_split(console: Console, split: SplitComparison, shown: Shown) -> None:
    first = split.first
    if first is None:
        whole = "" if split.is_complete else "; --tokens searches further"
        _line(console, f"split {split.name}: the same in {split.num_tokens:,} tokens{whole}")
        return
    where = "" if first.document is None else f"document {first.document:,}, "
    token = "" if first.token is None else f"token {first.token:,}, "
    _line(console, f"split {split.name}: {where}{token}{', '.join(first.fields)} differ first")
    for number, side in enumerate((first.a, first.b)):
        _draw_side(console, number, side, shown)


def _draw_side(console: Console, number: int, side: Side | None, shown: Shown) -> None:
    mark, style, store = MARKS[number], STYLES[number], shown.targets[number]
    if side is None or not isinstance(store, Store):
        _line(console, f"    {mark} has none", style=style)
        return
    origin = f" · {side.provenance}" if side.provenance else ""
    facts = f"shard {side.shard}, {side.num_tokens:,} tokens{origin}"
    _line(console, f"    {mark} {facts}; from token {side.start:,} on:", style=style)
    text = shown.decode(store, side.ids) if side.ids else None
    _line(console, f"      {_content(text, side.ids)}", style=style)
