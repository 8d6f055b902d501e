"""tokenreel build SOURCES… --out DIR --tokenizer FILE: from text or chats to a store."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.builder.build import ENGINES, build
from tokenreel.builder.plan import SHUFFLES
from tokenreel.builder.reported import is_reported, write_report
from tokenreel.cli.output import emit, printable, size
from tokenreel.store.writer import SHARD_BYTES
from tokenreel.text.tokenizers import ENGINES as TOKENIZER_ENGINES

if TYPE_CHECKING:
    from rich.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "sources",
        nargs="+",
        help="files, folders, globs (JSONL, Parquet, text), hf:owner/name, or a named source",
    )
    parser.add_argument("--out", required=True, type=Path, help="the folder of the new store")
    parser.add_argument(
        "--tokenizer", required=True, help='tokenizer.json, .model, .tiktoken, folder, or "byte"'
    )
    _add_reading(parser.add_argument_group("reading"))
    _add_chats(parser.add_argument_group("chats"))
    _add_content(parser.add_argument_group("what goes in"))
    _add_running(parser.add_argument_group("running"))


def _add_reading(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--kind", choices=("jsonl", "parquet", "text"), help="how files are read")
    group.add_argument("--text-key", help='field of the text (default "text")')
    group.add_argument("--id-key", help='field that names a document (default "id")')
    group.add_argument("--on-bad", choices=("error", "skip"), help="what to do with a bad record")
    group.add_argument("--max-retries", type=int, help="how often a failed read is tried again")
    group.add_argument("--retry-delay", type=float, help="seconds before the first retry")


def _add_chats(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--chat", action="store_true", help="records are chats")
    group.add_argument("--template", default="ngpt", help="chat template: a name or a TOML file")
    group.add_argument(
        "--policy",
        default="assistant",
        choices=("assistant", "last_assistant", "all"),
        help="which turns are trained",
    )


def _add_content(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--seed", type=int, default=42, help="of split and shuffle (default: 42)")
    group.add_argument("--val-frac", type=float, default=0.0, help="share of documents for val")
    group.add_argument("--val-tokens", type=int, help="fill val with this many tokens first")
    group.add_argument("--train-tokens", type=int, help="stop train at this many tokens")
    group.add_argument(
        "--shuffle",
        choices=SHUFFLES,
        default="none",
        help="documents: not at all, within buffers, or all of them (default: none)",
    )
    group.add_argument(
        "--shuffle-buffer",
        type=int,
        default=10_000,
        metavar="DOCUMENTS",
        help="the size of a buffer (default: 10000)",
    )
    group.add_argument(
        "--end-token",
        default="auto",
        help="token that ends each document (default: the one the tokenizer declares)",
    )
    group.add_argument(
        "--no-end-token", dest="end_token", action="store_const", const=None, help="append none"
    )
    group.add_argument("--deduplicate", action="store_true", help="drop exact copies")
    group.add_argument(
        "--min-tokens", type=int, default=1, help="drop shorter documents (default: 1)"
    )
    group.add_argument(
        "--no-provenance", dest="provenance", action="store_false", help="do not keep origins"
    )
    group.add_argument(
        "--shard-bytes",
        type=int,
        default=SHARD_BYTES,
        help=f"size of a token file (default: {SHARD_BYTES})",
    )


def _add_running(group: argparse._ArgumentGroup) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    group.add_argument("--workers", type=int, default=cores, help="processes (default: cores)")
    group.add_argument("--engine", choices=ENGINES, default="local", help="who encodes")
    group.add_argument("--address", default="local", help='Ray: "local", "auto" or an address')
    group.add_argument(
        "--tokenizer-engine",
        choices=TOKENIZER_ENGINES,
        default="auto",
        help="the fastest that gives the same ids, or the reference (default: auto)",
    )
    group.add_argument("--replace", action="store_true", help="replace a finished store")
    group.add_argument("--restart", action="store_true", help="forget an unfinished build")


CHOICES = (
    "policy",
    "seed",
    "val_frac",
    "val_tokens",
    "train_tokens",
    "shuffle",
    "shuffle_buffer",
    "end_token",
    "deduplicate",
    "min_tokens",
    "provenance",
)
RUNNING = (
    "chat",
    "template",
    "workers",
    "engine",
    "address",
    "tokenizer_engine",
    "shard_bytes",
    "replace",
    "restart",
)
SHOWN_PLACES = 5
READING = ("kind", "text_key", "id_key", "on_bad", "max_retries", "retry_delay")


def run(args: argparse.Namespace) -> int:
    """Build the store, write its report beside it and print the summary.

    A store that was finished but not reported on is not built again.
    """
    given = vars(args)
    reading = {name: given[name] for name in READING if given[name] is not None}
    built = build(
        args.sources,
        out=args.out,
        tokenizer=args.tokenizer,
        progress=not (args.quiet or args.json),
        source_options=reading,
        keep=not (args.replace or is_reported(args.out)),
        **{name: given[name] for name in (*CHOICES, *RUNNING)},
    )
    report = {"path": str(args.out), "fingerprint": built.store.fingerprint, **built.report}
    write_report(args.out, report)
    emit(args, report, lambda console: _draw(console, report))
    return 0


def _draw(console: Console, report: dict[str, Any]) -> None:
    from rich.markup import escape

    ledger = report["ledger"]
    per_token = report["bytes_per_token"]
    console.print(
        f"[bold]{escape(report['path'])}[/bold]: {report['documents']:,} documents read, "
        f"{size(report['text_bytes'])} of text"
        + (f", {per_token:.2f} bytes per token" if per_token else "")
    )
    for name, split in report["splits"].items():
        console.print(f"  {name}: {split['documents']:,} documents, {split['tokens']:,} tokens")
    parts = " + ".join(
        f"{name} {ledger[name]:,}" for name in ("trained", "masked", "truncated", "dropped")
    )
    console.print(f"  tokens: {parts} = {ledger['total']:,}")
    for reason, counts in report["dropped"].items():
        console.print(f"  left out, {reason}: {counts['documents']:,} documents")
    for reason, count in report["skipped"].items():
        console.print(f"  skipped, {escape(printable(reason))}: {count:,} records")
    for place in report["skipped_places"][:SHOWN_PLACES]:
        where = f"{place.get('file', 'memory')}:{place.get('row', -1) + 1}"
        console.print(f"    {escape(printable(where))}: {escape(printable(place['reason']))}")
    if end := report.get("end_token"):
        token = escape(printable(end["token"]))
        console.print(f"  documents end with {token} ({end['id']}), from {end['source']}")
    console.print(f"  tokenizer engine: {', '.join(report['tokenizer_engines'])}")
    console.print(f"  fingerprint {report['fingerprint'][:16]} · report.html in the store")
