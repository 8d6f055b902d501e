"""What people see of things: lines in a console, tokens as chips in HTML, marks in a terminal.

    told.py         facts in a line or a few; a repr never raises
    escaped.py      text that cannot break out of a page or command a terminal
    token_chips.py  chips in HTML
    token_marks.py  chips in plain characters: brackets, diamonds, bars
    chips.css       the one palette, light and dark, and the look of a chip
    style_sheet.py  chips.css for a page, or under names of its own for a notebook
    notebook.py     cards and tables that draw themselves in a notebook
    html_page.py    a page that stands alone
    share_bands.py  shares of sources over the steps, as SVG

Facts go in, text comes out; nothing is opened here but the style sheets of this folder. What a
repr needs is loaded with this package, the rest where it is used: workers show nothing.
"""

from tokenreel.display.told import (
    MOST_LINES,
    count_of,
    drawn_or_none,
    few,
    named,
    never_raising,
    table,
)

__all__ = ["MOST_LINES", "count_of", "drawn_or_none", "few", "named", "never_raising", "table"]
