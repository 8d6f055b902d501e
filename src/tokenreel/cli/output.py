"""Print a result: one JSON object for programs, or a drawing for people."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.markup import escape


def emit(
    args: argparse.Namespace, result: Mapping[str, object], draw: Callable[[Console], None]
) -> None:
    """Print `result` as JSON if asked for, else call `draw` with a console."""
    if args.json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        draw(Console(highlight=False, soft_wrap=True))


def facts_table(console: Console, facts: Mapping[str, object]) -> None:
    """Print names and values in two columns; a value of None is left out."""
    shown = {name: value for name, value in facts.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        console.print(f"[bold]{escape(name):<{width}}[/bold]  {escape(str(value))}")


def count(number: int | None) -> str:
    """Write a count with separators; None is unknown."""
    return "unknown" if number is None else f"{number:,}"


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


def add_open_options(parser: argparse.ArgumentParser) -> None:
    """Add the declarations that `open_store` takes."""
    parser.add_argument(
        "--layout", help="take the folder for this layout instead of recognising it"
    )
    parser.add_argument("--dtype", help="token dtype of a layout that does not declare it")
    parser.add_argument(
        "--vocab-size", type=int, help="vocabulary of a layout that does not say it"
    )
    parser.add_argument("--eos-id", type=int, help="find documents by this end token, once")
    parser.add_argument("--file-pattern", help="which files of a flat folder are shards")
