"""A rendered chat for people: what is trained in colour, or in brackets where there is none.

Control tokens are dim in colour and have a diamond in front of them without: text that spells one
has none. Characters that command a terminal are shown as their escapes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tokenreel.cli.output import printable
from tokenreel.text.chats.model_template import parse_argument
from tokenreel.text.chats.runs import Run

if TYPE_CHECKING:
    from rich.console import Console

DIAMOND = "◆"
BRACKETS = ("⟦", "⟧")
STYLES = {  # by whether a run is control tokens, and whether it is trained
    (False, False): "",
    (False, True): "bold green",
    (True, False): "dim cyan",
    (True, True): "bold green reverse",
}


def draw_runs(console: Console, runs: Sequence[Run]) -> None:
    """Print a chat, and one line that says how it is to be read."""
    from rich.text import Text

    if not has_colour(console):
        console.print(bracketed(runs), markup=False)
        return
    text = Text()
    for run in runs:
        text.append(printable(run.text), STYLES[run.is_control, run.is_trained])
    console.print(text)


def has_colour(console: Console) -> bool:
    """Tell whether colours can be seen: on a terminal that has some, unless NO_COLOR says no."""
    return console.is_terminal and not console.no_color and console.color_system is not None


def legend(console: Console) -> str:
    """Return how the drawing of a chat is to be read."""
    if has_colour(console):
        return "green is trained, reversed the control tokens of it; other control tokens are cyan"
    return f"{BRACKETS[0]}trained{BRACKETS[1]}, {DIAMOND} before each control token"


def bracketed(runs: Sequence[Run]) -> str:
    """Return a chat without colour: brackets around what is trained.

    >>> said = Run(ids=(1,), text="Four.", is_control=False, is_trained=True)
    >>> end = Run(ids=(2,), text="</s>", is_control=True, is_trained=True)
    >>> bracketed([said, end])
    '⟦Four.◆</s>⟧'
    """
    parts, is_open = [], False
    for run in runs:
        if run.is_trained != is_open:
            parts.append(BRACKETS[is_open])
            is_open = run.is_trained
        parts.append(f"{DIAMOND * run.is_control}{printable(run.text)}")
    return "".join(parts) + BRACKETS[1] * is_open


def add_template_options(parser: argparse.ArgumentParser) -> None:
    """Add --tokenizer and --template-arg."""
    parser.add_argument(
        "--tokenizer", required=True, metavar="SPEC", help="a tokenizer file or folder, or 'byte'"
    )
    parser.add_argument(
        "--template-arg",
        action="append",
        metavar="NAME=VALUE",
        help="argument of a model's own template, such as enable_thinking=false; repeat for more",
    )


def template_args(args: argparse.Namespace) -> Mapping[str, Any]:
    """Return the arguments of the template by their names."""
    return dict(map(parse_argument, args.template_arg or ()))
