"""tokenreel stream CONFIG: a dry run: speed, utilisation, documents, retries."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import Any

from rich.console import Console

from tokenreel.cli.output import count, emit, facts_table
from tokenreel.errors import ConfigError
from tokenreel.progress import Progress, bars
from tokenreel.stream import StreamPipeline


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("config", help="a stream's configuration in TOML, YAML or XML")
    parser.add_argument(
        "--steps", type=int, default=100, help="how many steps to make, at most (default 100)"
    )
    parser.add_argument(
        "--split", default="train", choices=("train", "eval"), help="what to read (default train)"
    )
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
    told, state = pipeline.stats(), pipeline.get_state()
    return {
        "steps": made,
        "shape": list(shape),
        "seconds": seconds,
        "tokens_per_second": (told["placed"] + told["overlap"]) / seconds,
        "epoch": max(lane["place"]["epoch"] for lane in state["lanes"].values()),
        **asdict(pipeline.config.model),
        "state_bytes": len(json.dumps(state)),
        **told,
    }


def _draw(console: Console, facts: dict[str, Any]) -> None:
    console.print(
        f"{count(facts['steps'])} batches {facts['shape']} in {facts['seconds']:,.2f} s, "
        f"{count(round(facts['tokens_per_second']))} tokens/s"
    )
    ids = (f"{role} {facts[f'{role}_token_id']}" for role in ("bos", "eos", "pad"))
    console.print(f"vocabulary {count(facts['vocab_size'])} ({', '.join(ids)})")
    console.print(f"utilisation {100 * facts['utilisation']:.2f} %, retries {facts['retries']:,}")
    always = ("documents", "epoch", "tokens", "trained", "masked", "padding")
    # What was lost on the way is told where there is something to tell.
    rarely = ("pending", "truncated", "dropped", "short_documents", "skipped_records")
    names = (*always, *(name for name in rarely if facts[name]))
    shown = {name.replace("_", " "): count(facts[name]) for name in names}
    facts_table(console, {**shown, "state": f"{facts['state_bytes']:,} bytes"})
