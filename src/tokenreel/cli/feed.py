"""tokenreel feed RECIPE: a dry run: speed, latency, padding, shares that came out."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from tokenreel.cli.output import emit
from tokenreel.cli.recipe_option import add_recipe
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.progress import Progress, bars


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_recipe(parser)
    parser.add_argument("--start-step", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200, help="how many steps to make")
    parser.add_argument("--prefetch", type=int, default=0, help="batches made ahead")
    parser.add_argument("--threads", type=int, default=1, help="threads that make them")


def run(args: argparse.Namespace) -> int:
    """Make batches and throw them away."""
    if args.steps < 1:
        raise ConfigError("bad number of steps", expected=">= 1", actual=args.steps)
    feed = Feed(Recipe.read(args.recipe, overrides=args.set), threads=args.threads)
    feed.step = args.start_step
    with bars(quiet=args.quiet or args.json) as progress:
        facts = dry_run(feed, steps=args.steps, prefetch=args.prefetch, progress=progress)
    emit(args, facts, lambda console: _draw(console, facts))
    return 0


def dry_run(feed: Feed, *, steps: int, prefetch: int, progress: Progress) -> dict[str, Any]:
    """Return what was measured over so many steps."""
    size = feed.recipe.batch_size
    first = feed.step
    progress.start("feeding", total=steps, unit="steps")
    waits, padding, trained, slots = [], 0, 0, 0
    stream = feed.stream(prefetch=prefetch, keep=1)
    for _ in range(steps):
        begin = time.perf_counter()
        batch = next(stream)
        waits.append(time.perf_counter() - begin)
        padding += int(np.count_nonzero(batch.segment_ids == 0))
        trained += int(np.count_nonzero(batch.loss_weights))
        slots += batch.input_ids.size
        progress.advance()
    sources = Counter(feed.order.locate(first * size, steps * size).source.tolist())
    return {
        "steps": steps,
        "tokens_per_second": slots / sum(waits),
        "milliseconds": {f"p{q}": float(np.percentile(waits, q)) * 1000 for q in (50, 90, 99, 100)},
        "padding_share": padding / slots,
        "trained_share": trained / slots,
        "shares": {
            source.name: sources[number] / (steps * size)
            for number, source in enumerate(feed.recipe.sources)
        },
    }


def _draw(console: Console, facts: dict[str, Any]) -> None:
    times = ", ".join(f"{name} {value:.3f}" for name, value in facts["milliseconds"].items())
    console.print(f"{facts['tokens_per_second'] / 1e6:,.1f} million tokens/s over {facts['steps']}")
    console.print(f"milliseconds a batch: {times}")
    padding, trained = 100 * facts["padding_share"], 100 * facts["trained_share"]
    console.print(f"padding {padding:.2f} %, trained {trained:.2f} %")
    for name, share in facts["shares"].items():
        console.print(f"  {escape(name)}: {100 * share:.2f} % of the rows")
