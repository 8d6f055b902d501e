"""tokenreel where RECIPE SOURCE DOCUMENT: which steps show a document."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from tokenreel.cli.output import emit
from tokenreel.cli.recipe_option import add_recipe, open_feed
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.trace import Hit, Searched, searched_steps


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_recipe(parser)
    parser.add_argument("source", help="name of the source in the recipe")
    parser.add_argument("document", type=int, help="number of the document in its split, from 0")
    parser.add_argument(
        "--start-step", type=int, default=0, help="the first step to search (default: 0)"
    )
    parser.add_argument(
        "--stop-step",
        type=int,
        help="the step to stop before (default: the end of the run; if it has none, of the epoch "
        "that follows the one under way)",
    )


def run(args: argparse.Namespace) -> int:
    """Find the steps."""
    if args.stop_step is not None and args.stop_step <= args.start_step:
        raise ConfigError("bad stop_step", expected=f"> {args.start_step:,}", actual=args.stop_step)
    feed = open_feed(args)
    steps = searched_steps(feed, args.source, start_step=args.start_step, stop_step=args.stop_step)
    hits = feed.where(args.source, args.document, start_step=steps.start, stop_step=steps.stop)
    in_no_row = not hits and not _num_rows(feed, args.source, args.document)
    result = {
        "source": args.source,
        "document": args.document,
        "searched": {"start_step": steps.start, "stop_step": steps.stop, "more": steps.goes_on},
        "in_no_row": in_no_row,
        "hits": [asdict(hit) for hit in hits],
    }
    emit(args, result, lambda console: _draw(console, args, hits, steps, in_no_row=in_no_row))
    return 0


def _num_rows(feed: Feed, source: str, document: int) -> int:
    names = [item.name for item in feed.recipe.sources]
    return len(feed.plans[names.index(source)].find(document))


def _draw(
    console: Console,
    args: argparse.Namespace,
    hits: list[Hit],
    steps: Searched,
    *,
    in_no_row: bool,
) -> None:
    for hit in hits:
        console.print(
            f"step {hit.step:,}, row {hit.row}: tokens {hit.start:,}–{hit.stop:,} "
            f"(epoch {hit.epoch})"
        )
    what = f"document {args.document:,} of {args.source}"
    if in_no_row:
        console.print(
            f"{escape(what)} is in no row: it was left out when rows were made, for its length or "
            'because nothing of it is trained; "tokenreel plan" counts such documents'
        )
        return
    found = f"shown {len(hits):,} time{'s' * (len(hits) != 1)}" if hits else "not shown"
    console.print(f"{escape(what)} is {found} in {_named(steps)}")


def _named(steps: Searched) -> str:
    """Return the steps that were searched, and what lies behind them."""
    if steps.stop is None:
        return f"all steps from {steps.start:,} on"
    last = steps.stop - 1
    named = f"step {last:,}" if last == steps.start else f"steps {steps.start:,} to {last:,}"
    if not steps.goes_on:
        return f"{named}, the end of the run"
    return f"{named}; there may be more behind them: --stop-step searches further"
