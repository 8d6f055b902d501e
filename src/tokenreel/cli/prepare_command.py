"""tokenreel prepare PATH: validate token shards and print the flags to train with."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from tokenreel.cli.output import count, emit, facts_table, size
from tokenreel.dropin.mapped.prepare import contract_flags, prepare


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
    known, more = contract_flags(facts["flags"])
    for flag in known:
        console.print(f"  {flag}", markup=False)
    if facts["vocab_size"]:
        more.append(f"--model.vocab_size={facts['vocab_size']}")
    if more:  # a trainer that parses flags strictly must not stumble over what is ours
        console.print(f"  # where the trainer knows them: {' '.join(more)}", markup=False)
