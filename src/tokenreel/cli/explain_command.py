"""tokenreel explain RECIPE STEP: which documents a step shows."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.markup import escape

from tokenreel.canonical import canonical_json
from tokenreel.cli.output import emit, printable
from tokenreel.cli.recipe_option import add_recipe, open_feed
from tokenreel.cli.tokenizer_option import add_tokenizer
from tokenreel.feed.trace import Explained, Segment, check_within

SHOWN_CHARACTERS = 96


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_recipe(parser)
    parser.add_argument("step", type=int, help="the step, counted from 0")
    parser.add_argument("--row", type=int, help="only this row of the global batch, from 0")
    add_tokenizer(parser, purpose="decode the segments with it")


def run(args: argparse.Namespace) -> int:
    """Explain the step."""
    feed = open_feed(args)
    check_within(feed, args.step)  # of the run: what no training shows is not explained
    explained = feed.explain(
        args.step, tokenizer=args.tokenizer, force_tokenizer=args.force_tokenizer
    )
    shown = explained if args.row is None else explained.only(args.row)
    emit(args, shown.as_dict(), lambda console: _draw(console, shown))
    return 0


def _draw(console: Console, explained: Explained) -> None:
    for row in explained.rows:
        console.print(f"[bold]row {row.row}[/bold]  {escape(row.source)}, epoch {row.epoch}")
        for segment in row.segments:
            console.print(f"  {escape(_describe(segment))}")
            if segment.text is not None:
                # repr, so that stored text cannot command the terminal
                console.print(f"    {segment.text[:SHOWN_CHARACTERS]!r}", markup=False)
            if segment.record is not None:
                told = canonical_json(segment.record)[:SHOWN_CHARACTERS]
                console.print(f"    record {printable(told)}", markup=False)


def _describe(segment: Segment) -> str:
    name = "stream" if segment.document is None else f"document {segment.document:,}"
    origin = f" · {segment.provenance}" if segment.provenance else ""
    return f"{name}, tokens {segment.start:,}–{segment.stop:,}, {segment.trained:,} trained{origin}"
