"""tokenreel prepare PATH: validate token shards and print the flags to train with."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from tokenreel.cli.output import count, emit, facts_table, size
from tokenreel.inspect.prepare import prepare


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("path", help="a folder of token shards")
    parser.add_argument("--dtype", help="token dtype, where nothing declares it")
    parser.add_argument("--vocab-size", type=int, help="vocabulary to check the ids against")
    parser.add_argument("--file-pattern", help='which files are shards, for example "*.npy"')


def run(args: argparse.Namespace) -> int:
    """Validate the folder and print facts and flags."""
    facts = prepare(
        args.path, dtype=args.dtype, vocab_size=args.vocab_size, file_pattern=args.file_pattern
    )
    emit(args, facts, lambda console: _draw(console, facts))
    return 0


def _draw(console: Console, facts: dict[str, Any]) -> None:
    facts_table(
        console,
        {
            "path": facts["path"],
            "layout": facts["layout"],
            "shards": count(facts["shards"]),
            "size": size(facts["bytes"]),
            "tokens": count(facts["tokens"]),
            "dtype": f"{facts['dtype']} (from {facts['dtype_source']})",
            "tokenizer": facts["tokenizer"] or "not recorded",
            "vocabulary": count(facts["vocab_size"]),
        },
    )
    console.print("\n[bold]train with[/bold]")
    for flag in facts["flags"]:
        console.print(f"  {flag}", markup=False)
