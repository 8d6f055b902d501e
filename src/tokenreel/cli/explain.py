"""tokenreel explain RECIPE STEP: which documents a step shows."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.markup import escape

from tokenreel.cli.output import emit, printable
from tokenreel.cli.recipe_option import add_recipe, open_feed
from tokenreel.feed.feed import Feed
from tokenreel.feed.trace import Explained, Segment

SHOWN_TOKENS = 24


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_recipe(parser)
    parser.add_argument("step", type=int, help="the step, counted from 0")
    parser.add_argument("--row", type=int, help="only this row of the global batch")
    parser.add_argument("--tokenizer", help="decode the beginning of each segment with it")


def run(args: argparse.Namespace) -> int:
    """Explain the step."""
    feed = open_feed(args)
    explained = feed.explain(args.step)
    result = explained.as_dict()
    emit(args, result, lambda console: _draw(console, feed, explained, args))
    return 0


def _draw(console: Console, feed: Feed, explained: Explained, args: argparse.Namespace) -> None:
    tokenizer = None
    if args.tokenizer:
        from tokenreel.text.tokenizers import load_tokenizer

        tokenizer = load_tokenizer(args.tokenizer)
    for row in explained.rows:
        if args.row is not None and row.row != args.row:
            continue
        console.print(f"[bold]row {row.row}[/bold]  {escape(row.source)}, epoch {row.epoch}")
        for segment in row.segments:
            console.print(f"  {escape(_describe(segment))}")
            if tokenizer is not None:
                text = tokenizer.decode(_tokens(feed, segment))
                console.print(f"    {escape(printable(text))!r}", markup=False)


def _describe(segment: Segment) -> str:
    name = "stream" if segment.document is None else f"document {segment.document:,}"
    origin = f" · {segment.provenance}" if segment.provenance else ""
    return f"{name}, tokens {segment.start:,}–{segment.stop:,}, {segment.trained:,} trained{origin}"


def _tokens(feed: Feed, segment: Segment) -> list[int]:
    number = [source.name for source in feed.recipe.sources].index(segment.source)
    split = feed.plans[number].split
    first = 0 if segment.document is None else split.document_span(segment.document)[0]
    stop = min(segment.stop, segment.start + SHOWN_TOKENS)
    return [int(token) for token in split.read(first + segment.start, first + stop)]
