"""An explained step for people: in a notebook, the documents of its first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.canonical import canonical_json
from tokenreel.display import MOST_LINES, count_of
from tokenreel.display.escaped import printed
from tokenreel.display.notebook import card, remark_html, row_html
from tokenreel.display.style_sheet import PREFIX
from tokenreel.display.token_chips import swatch_html

if TYPE_CHECKING:
    from tokenreel.feed.trace import Explained, ExplainedRow, Segment

FIRST_LETTERS, LAST_LETTERS = 240, 80  # of a segment's text; what lies between is counted
MOST_LETTERS = 200  # of a record


def explained_html(explained: Explained) -> str:
    """Return a card: rows, their segments with documents, where they come from, and their text."""
    sources = list(dict.fromkeys(row.source for row in explained.rows))
    shown = explained.rows[:MOST_LINES]
    rows = "".join(_row(row, sources.index(row.source)) for row in shown)
    trained = sum(segment.trained for row in explained.rows for segment in row.segments)
    left = len(explained.rows) - len(shown)
    rest = f"… and {count_of(left, 'more row')}" if left > 0 else ""
    facts = [f"step {explained.step:,}", count_of(len(explained.rows), "row")]
    return card("Explained", rows, remark_html(rest), facts=[*facts, f"{trained:,} trained"])


def _row(row: ExplainedRow, hue: int) -> str:
    trained = sum(segment.trained for segment in row.segments)
    facts = [
        f"{swatch_html(hue, prefix=PREFIX)} {printed(row.source)}",
        f"epoch {row.epoch:,}",
        count_of(len(row.segments), "segment"),
        f"{trained:,} trained",
    ]
    shown = "".join(map(_segment, row.segments[:MOST_LINES]))
    left = len(row.segments) - MOST_LINES
    rest = remark_html(f"… and {count_of(left, 'more segment')}" if left > 0 else "")
    return row_html(f"row {row.row:,}", facts, shown + rest)


def _segment(segment: Segment) -> str:
    name = "document unknown" if segment.document is None else f"document {segment.document:,}"
    facts = [f"tokens {segment.start:,}–{segment.stop:,}", f"{segment.trained:,} trained"]
    if segment.role_of_answer is not None:
        facts.insert(0, segment.role_of_answer)
    if segment.provenance is not None:
        facts.append(str(segment.provenance))
    told = "".join(f"<span>{printed(fact)}</span>" for fact in facts)
    inside = f'<div class="{PREFIX}label"><span>{name}</span>{told}</div>'
    if segment.text is not None:
        inside += f'<div class="{PREFIX}text">{_clipped(segment.text)}</div>'
    if segment.record is not None:
        record = canonical_json(segment.record)
        more = "…" * (len(record) > MOST_LETTERS)
        inside += remark_html(f"record {record[:MOST_LETTERS]}{more}")
    return f'<div class="{PREFIX}segment">{inside}</div>'


def _clipped(text: str) -> str:
    """Return text as HTML, without its middle where it is long."""
    left = len(text) - FIRST_LETTERS - LAST_LETTERS
    if left <= 0:
        return printed(text)
    more = f'<span class="{PREFIX}chip-more"> … {count_of(left, "character")} … </span>'
    return printed(text[:FIRST_LETTERS]) + more + printed(text[-LAST_LETTERS:])
