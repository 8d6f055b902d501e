"""tokenreel stream CONFIG: a dry run: speed, utilisation, documents, retries."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from rich.console import Console

from tokenreel.cli.output import count, emit, facts_table
from tokenreel.errors import ConfigError
from tokenreel.progress import Progress, bars
from tokenreel.stream import StreamPipeline


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("config", help="a stream's configuration in TOML, YAML or XML")
    parser.add_argument("--steps", type=int, default=100, help="how many steps to make, at most")
    parser.add_argument("--split", default="train", choices=("train", "eval"))
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting, e.g. data.seed=3 or data.tokenizer.kind=byte (may be repeated)",
    )


def run(args: argparse.Namespace) -> int:
    """Make batches and throw them away."""
    if args.steps < 1:
        raise ConfigError("bad number of steps", expected=">= 1", actual=args.steps)
    with (
        StreamPipeline(args.config, split=args.split, overrides=args.set) as pipeline,
        bars(quiet=args.quiet or args.json) as progress,
    ):
        facts = dry_run(pipeline, steps=args.steps, progress=progress)
    emit(args, facts, lambda console: _draw(console, facts))
    return 0


def dry_run(pipeline: StreamPipeline, *, steps: int, progress: Progress) -> dict[str, Any]:
    """Return what was measured over so many steps, or fewer if the stream ends."""
    progress.start("streaming", total=steps, unit="steps")
    shape: tuple[int, ...] = ()
    made, begin = 0, time.perf_counter()
    for batch in pipeline:
        made, shape = made + 1, batch.input_ids.shape
        progress.advance()
        if made == steps:
            break
    seconds = time.perf_counter() - begin
    told = pipeline.stats()
    return {
        "steps": made,
        "shape": list(shape),
        "seconds": seconds,
        "tokens_per_second": (told["placed"] + told["overlap"]) / seconds,
        "vocab_size": pipeline.vocab_size,
        "state_bytes": len(json.dumps(pipeline.get_state())),
        **told,
    }


def _draw(console: Console, facts: dict[str, Any]) -> None:
    console.print(
        f"{facts['steps']:,} batches {facts['shape']}, "
        f"{facts['tokens_per_second'] / 1e6:,.2f} million tokens/s"
    )
    console.print(f"utilisation {100 * facts['utilisation']:.2f} %, retries {facts['retries']:,}")
    names = ("documents", "tokens", "trained", "masked", "padding", "truncated", "dropped")
    shown = {name: count(facts[name]) for name in (*names, "pending", "skipped_records")}
    facts_table(console, {**shown, "state": f"{facts['state_bytes']:,} bytes"})
