"""What people see of an object: a line or a few in a console, HTML in a notebook.

Facts go in, text comes out; nothing is opened here, and a repr never raises. HTML is escaped,
characters that could rearrange a page (controls, direction marks) are shown by their number, and
its colours are half transparent over those of the notebook, so that light and dark are served.
A trained token has a solid line under it, a masked one a dotted line, padding none.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_LINES = 8
# Controls, formats (direction marks among them), separators of lines, what is not assigned.
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
PICTURES = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\0": "␀"}
KINDS = ("trained", "masked", "padding")
STYLE = """<style>
.tokenreel{color:inherit}.tokenreel-rows{font-family:ui-monospace,monospace;line-height:1.9}
.tokenreel-row{margin:.4em 0;white-space:pre-wrap;overflow-wrap:anywhere}
.tokenreel-label{opacity:.6}.tokenreel span[title]{unicode-bidi:isolate;margin-right:2px}
.tokenreel-trained{background:rgba(46,160,98,.25);border-bottom:2px solid rgb(46,160,98)}
.tokenreel-masked{border-bottom:2px dotted rgba(128,128,128,.9)}.tokenreel-padding{opacity:.45}
.tokenreel-begins{border-left:2px solid rgb(215,140,30);margin-left:.5em;padding-left:.15em}
</style>"""
CELL = "text-align:left;padding:.15em 1em .15em 0;vertical-align:top"
NUMBER = "text-align:right;padding:.15em 1em .15em 0;font-variant-numeric:tabular-nums"


def never_raising(tell: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a __repr__ that falls back on Python's own, for objects half made or half gone."""

    @functools.wraps(tell)
    def told(self: Any) -> str:
        try:
            return tell(self)
        except Exception:
            return object.__repr__(self)

    return told


def count_of(number: int | None, noun: str) -> str:
    """Return a number with its noun.

    >>> count_of(1, "token"), count_of(2000, "token"), count_of(None, "document")
    ('1 token', '2,000 tokens', 'documents unknown')
    """
    if number is None:
        return f"{noun}s unknown"
    return f"{number:,} {noun}{'s' * (number != 1)}"


def named(name: str, facts: Iterable[str | None], lines: Iterable[str] = ()) -> str:
    """Return Name(fact, fact) and, below it, the lines of its parts.

    >>> print(named("Store", ["native", None, "9 tokens"], ["train: 9 tokens"]))
    Store(native, 9 tokens)
      train: 9 tokens
    """
    head = f"{name}({', '.join(fact for fact in facts if fact)})"
    return "\n  ".join([head, *(line.replace("\n", "\n  ") for line in lines)])


def few(
    items: Sequence[str], noun: str, *, most: int = MOST_LINES, total: int | None = None
) -> list[str]:
    """Return the first of the items and, in place of the others, how many they are.

    >>> few(["a", "b", "c"], "rows", most=2)
    ['a', 'b', '… and 1 more rows']
    """
    more = (len(items) if total is None else total) - most
    return [*items[:most], f"… and {more:,} more {noun}".rstrip()] if more > 0 else [*items]


def printed(value: object) -> str:
    """Return text as HTML; characters that do not show are given by a picture or their number.

    >>> printed("<b> & \\u202e")
    '&lt;b&gt; &amp; \\\\u202e'
    """
    from html import escape  # takes as long as all of this module, and workers show nothing

    return escape("".join(map(_visible, str(value))))


def _visible(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    if character in PICTURES:
        return PICTURES[character]
    if unicodedata.category(character) not in HIDDEN:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in HTML: numbers to the right, the first rows, and how many more there are."""
    lines = [_row(head, "th"), *(_row(row, "td") for row in rows[:MOST_LINES])]
    more = f"<div>… and {len(rows) - MOST_LINES:,} more</div>" if len(rows) > MOST_LINES else ""
    return (
        f'<div class="tokenreel"><div><b>{printed(title)}</b></div>'
        f'<table style="border-collapse:collapse;margin:.3em 0">{"".join(lines)}</table>'
        f"{more}</div>"
    )


def _row(cells: Sequence[object], tag: str) -> str:
    shown = [
        f'<{tag} style="{NUMBER if _is_number(cell) else CELL}">{_cell(cell)}</{tag}>'
        for cell in cells
    ]
    return f"<tr>{''.join(shown)}</tr>"


def _is_number(cell: object) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def _cell(cell: object) -> str:
    if isinstance(cell, bool) or cell is None:
        return "yes" if cell else "–"
    if isinstance(cell, int):
        return f"{cell:,}"
    return printed(f"{cell:,.2f}" if isinstance(cell, float) else cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token to be shown: its text or id, one of KINDS, what is told of it, and where it stands.

    `begins` a segment: a line is drawn in front of it.
    """

    text: str
    kind: str
    told: str
    begins: bool = False


def token_rows(title: str, rows: Sequence[tuple[str, Sequence[Token], int]], more: int) -> str:
    """Return rows of coloured tokens in HTML: (label, tokens, how many more the row has)."""
    legend = " ".join(f'<span class="tokenreel-{kind}">{kind}</span>' for kind in KINDS)
    lines = "".join(_token_row(label, tokens, left) for label, tokens, left in rows)
    rest = f"<div>… and {more:,} more rows</div>" if more > 0 else ""
    return (
        f'{STYLE}<div class="tokenreel"><div><b>{printed(title)}</b> &nbsp; {legend}</div>'
        f'<div class="tokenreel-rows">{lines}</div>{rest}</div>'
    )


def _token_row(label: str, tokens: Sequence[Token], left: int) -> str:
    rest = f" <i>… and {left:,} more tokens</i>" if left > 0 else ""
    shown = "".join(map(_token, tokens))
    label = f'<span class="tokenreel-label">{printed(label)}</span>'
    return f'<div class="tokenreel-row">{label} {shown}{rest}</div>'


def _token(token: Token) -> str:
    css = f"tokenreel-{token.kind}{' tokenreel-begins' if token.begins else ''}"
    text = printed(token.text) or "∅"
    return f'<span class="{css}" title="{printed(token.told)}">{text}</span>'
