"""tokenreel feed RECIPE: a dry run: speed, latency, padding, shares that came out."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from tokenreel.cli.output import emit, notice
from tokenreel.cli.recipe_option import add_recipe
from tokenreel.cli.tokenizer_option import add_tokenizer
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.progress import Progress, bars
from tokenreel.text.tokenizers import load_tokenizer

DEFAULT_STEPS = 200


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_recipe(parser)
    parser.add_argument("--start-step", type=int, default=0, help="the first step (default: 0)")
    parser.add_argument(
        "--steps", type=int, help="how many steps to make (default: all of an evaluation, else 200)"
    )
    parser.add_argument(
        "--prefetch", type=int, default=0, help="batches made ahead (default: none)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads that make them (default: 1)"
    )
    add_tokenizer(parser, purpose="the tokenizer of the model")


def run(args: argparse.Namespace) -> int:
    """Make batches and throw them away."""
    if args.steps is not None and args.steps < 1:
        raise ConfigError("bad number of steps", expected=">= 1", actual=args.steps)
    feed = Feed(Recipe.read(args.recipe, overrides=args.set), threads=args.threads)
    if args.tokenizer and not args.force_tokenizer:
        feed.check_tokenizer(load_tokenizer(args.tokenizer).fingerprint)
    feed.step = args.start_step
    steps = _num_steps(feed, args.steps)
    if feed.ending is not None:
        notice(args, _announced(feed))
    with bars(quiet=args.quiet or args.json) as progress:
        facts = dry_run(feed, steps=steps, prefetch=args.prefetch, progress=progress)
    emit(args, facts, lambda console: _draw(console, facts))
    return 0


def _num_steps(feed: Feed, asked: int | None) -> int:
    """Return how many steps to make: as many as asked for, and as there are."""
    if asked is None:
        asked = len(feed) if feed.recipe.passes is not None else DEFAULT_STEPS
    if feed.num_steps is None:
        return asked
    left = feed.num_steps - feed.step
    if left < 1:
        raise ConfigError(
            "no step is left", expected=f"a step below {feed.num_steps:,}", actual=feed.step
        )
    return min(asked, left)


def _announced(feed: Feed) -> str:
    """Return the sentence about all that the run will show."""
    if feed.recipe.passes is None:
        return str(feed.ending)
    rows, size = int(feed.deal.num_rows or 0), feed.recipe.global_batch_size
    times = "once" if feed.recipe.passes == 1 else f"{feed.recipe.passes} times"
    filled = len(feed) * size - rows
    padding = f"; the last is filled up with {filled:,} rows of padding" if filled else ""
    steps = f"{len(feed):,} step" + "s" * (len(feed) != 1)
    return f"an evaluation: each row {times}, {rows:,} rows in {steps}{padding}"


def dry_run(feed: Feed, *, steps: int, prefetch: int, progress: Progress) -> dict[str, Any]:
    """Return what was measured over so many steps."""
    progress.start("feeding", total=steps, unit="steps")
    waits, padding, trained, slots = [], 0, 0, 0
    rows = np.zeros(len(feed.recipe.sources) + 1, np.int64)  # of each source; the last: of none
    stream = feed.stream(prefetch=prefetch, keep=1)
    for _ in range(steps):
        begin = time.perf_counter()
        batch = next(stream)
        waits.append(time.perf_counter() - begin)
        padding += int(np.count_nonzero(batch.segment_ids == 0))
        trained += int(np.count_nonzero(batch.loss_weights))
        slots += batch.input_ids.size
        rows += np.bincount(batch.source_ids.reshape(-1) % len(rows), minlength=len(rows))
        progress.advance()
    return {
        "steps": steps,
        "rows": int(rows[:-1].sum()),
        "rows_of_padding": int(rows[-1]),
        "trained_tokens": trained,
        "tokens_per_second": slots / sum(waits),
        "milliseconds": {f"p{q}": float(np.percentile(waits, q)) * 1000 for q in (50, 90, 99, 100)},
        "padding_share": padding / slots,
        "trained_share": trained / slots,
        "shares": {
            source.name: int(count) / int(rows[:-1].sum())
            for source, count in zip(feed.recipe.sources, rows, strict=False)
        },
    }


def _draw(console: Console, facts: dict[str, Any]) -> None:
    times = ", ".join(f"{name} {value:.3f}" for name, value in facts["milliseconds"].items())
    shown = f"{facts['rows']:,} rows, {facts['trained_tokens']:,} trained tokens"
    speed = f"{facts['tokens_per_second'] / 1e6:,.1f} million tokens/s"
    console.print(f"{speed} over {facts['steps']:,} steps: {shown}")
    console.print(f"milliseconds a batch: {times}")
    padding, trained = 100 * facts["padding_share"], 100 * facts["trained_share"]
    console.print(f"padding {padding:.2f} %, trained {trained:.2f} %")
    for name, share in facts["shares"].items():
        console.print(f"  {escape(name)}: {100 * share:.2f} % of the rows")
