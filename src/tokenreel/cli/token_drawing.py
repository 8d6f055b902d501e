"""Tokens in a terminal: the one place that decides how they look there.

In colour, what is trained is green and underlined, context is plain, a control id is violet with a
diamond before it. Without (a pipe, a log, NO_COLOR) brackets stand around what is trained; the
diamonds are there too. Characters that command a terminal are shown as their escapes, and so are
our own marks in a text: nothing that is stored can look like structure, or do anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from tokenreel.cli.output import printable
from tokenreel.display import count_of
from tokenreel.display.escaped import PICTURES
from tokenreel.display.token_chips import Chip, chips_of
from tokenreel.display.token_marks import BRACKETS, DIAMOND, Shown, bracketed, unmarked

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tokenreel.text.tokenizers.id_texts import IdTexts

STYLES = {  # by whether it is a control id, and whether it is trained
    (False, False): "",
    (False, True): "green underline",
    (True, False): "magenta",
    (True, True): "bold magenta underline",
}
QUIET = "dim"
WARNING = "bold yellow"
# The terminal's own colours, which its owner chose to be legible: one for each hue of chips.css.
HUES = ("blue", "yellow", "cyan", "magenta", "bright_blue", "red", "bright_yellow", "white")
SWATCH = "■"
FIRST_TOKENS, LAST_TOKENS = 48, 16  # of a long text; what lies between is counted


def has_colour(console: Console) -> bool:
    """Tell whether colours can be seen: on a terminal that has some, unless NO_COLOR says no."""
    return console.is_terminal and not console.no_color and console.color_system is not None


def hue_style(console: Console, number: int) -> str:
    """Return the style of a source by its number."""
    return HUES[number % len(HUES)] if has_colour(console) else ""


def draw_tokens(console: Console, shown: Iterable[Shown], *, indent: int = 0) -> None:
    """Print tokens, each in its way; lines of a text are lines of the terminal."""
    _print(console, _drawn(console, [(_safe(token.text), token) for token in shown]), indent)


def draw_line(
    console: Console, first: Sequence[Chip], left: int, last: Sequence[Chip], *, indent: int = 0
) -> None:
    """Print tokens as one text, ends of lines as pictures; `left` tokens in the middle are not."""
    line = _drawn(console, _on_one_line(first))
    if left:
        line.append(f" … {count_of(left, 'token')} … ", QUIET)
        line.append_text(_drawn(console, _on_one_line(last)))
    _print(console, line, indent)


def shortened(ids: Sequence[int]) -> tuple[slice, int, slice]:
    """Return which tokens of a long text are shown, how many are not, and which are at its end.

    >>> shortened(range(100))
    (slice(0, 48, None), 36, slice(84, 100, None))
    >>> shortened(range(60))
    (slice(0, 60, None), 0, slice(60, 60, None))
    """
    left = len(ids) - FIRST_TOKENS - LAST_TOKENS
    if left <= 0:
        return slice(0, len(ids)), 0, slice(len(ids), len(ids))
    return slice(0, FIRST_TOKENS), left, slice(len(ids) - LAST_TOKENS, len(ids))


def chips(ids: Sequence[int], weights: Sequence[float], id_texts: IdTexts) -> list[Chip]:
    """Return the chips of tokens, by the texts of their ids."""
    return list(chips_of(ids, id_texts.of(ids), weights, controls=id_texts.control_names))


def draw_legend(console: Console, *, indent: int = 0) -> None:
    """Print how the drawing of tokens is to be read, in one line."""
    from rich.text import Text

    line = Text("(")
    if has_colour(console):
        line.append("trained", STYLES[False, True]).append(", context, ")
        line.append(f"{DIAMOND}control", STYLES[True, False]).append(", ")
        line.append(f"{DIAMOND}trained control", STYLES[True, True]).append(")")
    else:
        line.append(f"{BRACKETS[0]}trained{BRACKETS[1]}, context, {DIAMOND}control)")
    _print(console, line, indent)


def _drawn(console: Console, texts: Sequence[tuple[str, Shown]]) -> Text:
    from rich.text import Text

    if not has_colour(console):
        return Text(bracketed(texts))
    drawn = Text()
    kinds = groupby(texts, key=lambda item: (item[1].is_control, item[1].is_trained))
    for (is_control, is_trained), run in kinds:  # one pair of escapes for all of a kind
        text = "".join(f"{DIAMOND * is_control}{text}" for text, _ in run)
        drawn.append(text, STYLES[is_control, is_trained])
    return drawn


def _print(console: Console, text: Text, indent: int) -> None:
    """Print with an indent: lines that are too long are broken on a terminal, and only there."""
    from rich.padding import Padding
    from rich.text import Text

    if console.is_terminal and indent:
        console.print(Padding(text, (0, 0, 0, indent)), soft_wrap=False, overflow="fold")
        return
    lines = [Text(" " * indent).append_text(line) for line in text.split("\n", allow_blank=True)]
    console.print(Text("\n").join(lines), soft_wrap=True)


def _on_one_line(chips: Iterable[Chip]) -> list[tuple[str, Shown]]:
    return [(_safe(chip.text.replace("\n", PICTURES["\n"])), chip) for chip in chips]


def _safe(text: str) -> str:
    return unmarked(printable(text))
