"""tokenreel where RECIPE SOURCE DOCUMENT: which steps show a document."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.console import Console

from tokenreel.cli.output import emit
from tokenreel.cli.recipe_option import add_recipe, open_feed
from tokenreel.feed.trace import Hit


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_recipe(parser)
    parser.add_argument("source", help="name of the source in the recipe")
    parser.add_argument("document", type=int, help="number of the document in its split")
    parser.add_argument("--start-step", type=int, default=0)
    parser.add_argument("--stop-step", type=int, help="default: through the next epoch")


def run(args: argparse.Namespace) -> int:
    """Find the steps."""
    hits = open_feed(args).where(
        args.source, args.document, start_step=args.start_step, stop_step=args.stop_step
    )
    result = {
        "source": args.source,
        "document": args.document,
        "hits": [asdict(hit) for hit in hits],
    }
    emit(args, result, lambda console: _draw(console, hits))
    return 0


def _draw(console: Console, hits: list[Hit]) -> None:
    if not hits:
        console.print("not shown in these steps")
    for hit in hits:
        console.print(
            f"step {hit.step:,}, row {hit.row}: tokens {hit.start:,}–{hit.stop:,} "
            f"(epoch {hit.epoch})"
        )
