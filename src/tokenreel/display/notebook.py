"""What a notebook shows of an object: a card of its own, without scripts and without a server.

Each card carries its style, some six kilobytes, because cards are shown alone, kept in files and
sent around. The style names nothing that is not ours; see style_sheet.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenreel.display.escaped import printed
from tokenreel.display.style_sheet import PREFIX, notebook_style
from tokenreel.display.told import MOST_LINES


class Html(str):
    """What is HTML already, among cells that are not."""

    __slots__ = ()


def card(title: str, *parts: str, facts: Sequence[str] = ()) -> str:
    """Return a card: its title, facts beside it, and the parts below, which are HTML."""
    told = "".join(f"<span>{printed(fact)}</span>" for fact in facts)
    head = f'<div class="{PREFIX}head"><b>{printed(title)}</b>{told}</div>'
    inside = "".join(parts)
    return f'<div class="tokenreel {PREFIX}card">{notebook_style()}{head}{inside}</div>'


def row_html(label: str, facts: Sequence[str], inside: str) -> str:
    """Return a row of a card: its label, facts beside it (both HTML), and what it has."""
    told = "".join(f"<span>{fact}</span>" for fact in facts)
    head = f'<div class="{PREFIX}label"><b>{label}</b>{told}</div>'
    return f'<div class="{PREFIX}row">{head}{inside}</div>'


def remark_html(text: str) -> str:
    """Return a line in small print at the end of a card; nothing for no text."""
    return f'<div class="{PREFIX}more">{printed(text)}</div>' if text else ""


def table_html(
    head: Sequence[str], rows: Sequence[Sequence[object]], *, most: int = MOST_LINES
) -> str:
    """Return a table: numbers to the right, the first rows, and how many more there are."""
    is_number = [_is_number(cell) for cell in rows[0]] if rows else [False] * len(head)
    lines = [_line(head, is_number, "th")]
    lines += [_line(row, is_number, "td") for row in rows[:most]]
    more = f"… and {len(rows) - most:,} more" if len(rows) > most else ""
    table = f'<table class="{PREFIX}table">{"".join(lines)}</table>'
    return f'<div class="{PREFIX}scroll">{table}</div>{remark_html(more)}'


def _line(cells: Sequence[object], is_number: Sequence[bool], tag: str) -> str:
    shown = (
        f"<{tag}{f' class={PREFIX}number' * right}>{_cell(cell)}</{tag}>"
        for cell, right in zip(cells, is_number, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"


def _is_number(cell: object) -> bool:
    if isinstance(cell, str):
        return cell.endswith("%")
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def _cell(cell: object) -> str:
    if isinstance(cell, Html):
        return cell
    if isinstance(cell, bool) or cell is None:
        return "yes" if cell else "–"
    if isinstance(cell, int):
        return f"{cell:,}"
    return printed(f"{cell:,.2f}" if isinstance(cell, float) else cell)
