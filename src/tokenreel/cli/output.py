"""The one place that prints: results for programs and for people, notices, errors.

A result goes to standard output, as one JSON object with --json, else drawn; everything else
goes to standard error. A character that the output's encoding lacks becomes a question mark.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from tokenreel.cli.usage import MisuseError
from tokenreel.errors import TokenreelError

if TYPE_CHECKING:
    from rich.console import Console  # loaded when something is drawn


def emit(
    args: argparse.Namespace, result: Mapping[str, object], draw: Callable[[Console], None]
) -> None:
    """Print `result` as JSON if asked for, else call `draw` with a console."""
    if args.json:
        _print_json(result)
    else:
        draw(drawing_console())


def emit_text(args: argparse.Namespace, result: Mapping[str, object], text: str) -> None:
    """Print `result` as JSON if asked for, else a text as it is: no markup, no wrapping."""
    if args.json:
        _print_json(result)
    else:
        _print(text)


def emit_at_once(args: argparse.Namespace, result: Mapping[str, object], text: str) -> None:
    """Do the same, of a command that goes on: who reads through a pipe gets the result now."""
    emit_text(args, result, text)
    sys.stdout.flush()


def notice(args: argparse.Namespace, text: str) -> None:
    """Tell a person something beside the result; not with --json or --quiet."""
    if not (args.json or args.quiet):
        _print(text, error=True)


def report_error(error: TokenreelError, *, as_json: bool) -> None:
    """Print an error's message; with --json also its parts, in the place of the result."""
    if as_json:
        _print_json(error.as_dict())
    _print(f"error: {error._message()}", error=True)


def report_misuse(misuse: MisuseError, *, as_json: bool) -> None:
    """Print how the command is used, then what was wrong."""
    _print(misuse.usage.rstrip(), error=True)
    report_error(misuse.error, as_json=as_json)


def report_signal(number: int, *, is_kept: bool) -> None:
    """Print the one line of a command that was ended from outside."""
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    kept = "; what was finished is kept" if is_kept else ""
    _print(f"{how}{kept}", error=True)


def drop_output() -> None:
    """Discard what is still to be printed: the reader of the output has closed it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def drawing_console(*, error: bool = False, soft_wrap: bool = True) -> Console:
    """Return the console that results are drawn on, or that of standard error."""
    from rich.console import Console

    return Console(file=_stream(error=error), highlight=False, soft_wrap=soft_wrap)


def _print_json(result: Mapping[str, object]) -> None:
    _print(json.dumps(result, indent=2, ensure_ascii=False))


def _print(text: str, *, error: bool = False) -> None:
    print(text, file=_stream(error=error))


def _stream(*, error: bool) -> TextIO:
    """Return standard output or standard error; no character makes it fail."""
    stream = sys.stderr if error else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")
    return stream


def columns_table(
    console: Console, rows: Sequence[Sequence[str]], *, styles: Mapping[str, str] | None = None
) -> None:
    """Print rows in columns, the first row as the head; the first column is of words.

    Lines are as long as they must be: a file or a program gets every character. `styles` are
    those of words in the head.
    """
    from rich.text import Text

    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        name, *figures = (
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        line = Text("  ".join((name, *figures)).rstrip(), "dim" if number == 0 else "")
        for word, style in (styles or {}).items() if number == 0 else ():
            line.highlight_words([word], style)
        console.print(line)


def facts_table(console: Console, facts: Mapping[str, object]) -> None:
    """Print names and values in two columns; a value of None is left out."""
    from rich.markup import escape

    shown = {name: value for name, value in facts.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        console.print(f"[bold]{escape(name):<{width}}[/bold]  {escape(str(value))}")


def count(number: int | None) -> str:
    """Write a count with separators; None is unknown."""
    return "unknown" if number is None else f"{number:,}"


def short_count(number: int) -> str:
    """Write a count in at most nine characters: all digits below ten millions.

    >>> short_count(9_876_543), short_count(12_345_678), short_count(10**12)
    ('9,876,543', '12.3M', '1,000.0B')
    """
    if number < 10**7:
        return f"{number:,}"
    return f"{number / 1e6:,.1f}M" if number < 10**9 else f"{number / 1e9:,.1f}B"


def size(num_bytes: int) -> str:
    """Write a size in bytes as people read it.

    >>> size(1536), size(3 * 1024**3)
    ('1.5 KiB', '3.0 GiB')
    """
    value = float(num_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            return f"{num_bytes:,} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} PiB"


def printable(text: str) -> str:
    """Make control characters visible, so that stored text cannot command the terminal.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )
