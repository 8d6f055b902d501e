"""A page that stands alone: one file with its style in it, no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenreel.display.escaped import printed
from tokenreel.display.style_sheet import style_of

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(title: str, sections: Iterable[str], *, style: str = "") -> str:
    """Return the page; the sections are HTML, and `style` is what they add to the shared look."""
    css = style_of("chips.css") + style_of("page.css") + style
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{printed(title)}</title><style>{css}</style></head>"
        f"<body>{''.join(sections)}</body></html>\n"
    )


def cells_table(
    rows: Iterable[Sequence[str]],
    *,
    head: Sequence[str] = (),
    numbers: Sequence[int] = (),
    css: str = "",
) -> str:
    """Return a table of cells that are HTML; `numbers` are the columns set to the right."""

    def line(tag: str, cells: Sequence[str]) -> str:
        drawn = (
            f'<{tag} class="{"n" if column in numbers else ""}">{cell}</{tag}>'
            for column, cell in enumerate(cells)
        )
        return f"<tr>{''.join(drawn)}</tr>"

    top = line("th", [printed(cell) for cell in head]) if head else ""
    body = "".join(line("td", row) for row in rows)
    return f'<div class="scroll"><table class="{css}">{top}{body}</table></div>'
