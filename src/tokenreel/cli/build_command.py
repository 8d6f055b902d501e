"""tokenreel build SOURCES… --out DIR --tokenizer FILE: from text or chats to a store."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.builder.build import build
from tokenreel.builder.report_files import PAGE_NAME, is_reported
from tokenreel.cli.flags import add_flags, described
from tokenreel.cli.output import emit, printable, size

if TYPE_CHECKING:
    from rich.console import Console


# The keywords of `build` that are flags, as the help groups them; what they are, it says itself.
GROUPS = {
    "reading": (
        "text_key id_key kind on_bad max_retries retry_delay streaming max_record_bytes "
        "max_uncompressed_bytes max_ratio"
    ),
    "chats": "chat template policy",
    "what goes in": (
        "end_token seed val_frac val_tokens train_tokens shuffle shuffle_buffer deduplicate "
        "min_tokens provenance shard_size chunk_bytes"
    ),
    "running": "workers engine address tokenizer_engine replace restart",
}
SHOWN_PLACES = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command: those of `build`."""
    parser.add_argument("sources", nargs="+", help=described(build)["sources"])
    add_flags(parser, build, ["out", "tokenizer"])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    for title, names in GROUPS.items():
        add_flags(parser.add_argument_group(title), build, names.split(), workers=cores, chat=False)


def run(args: argparse.Namespace) -> int:
    """Build the store and print the summary; one that is there already is not built again."""
    out = Path(args.out)
    names = [name for names in GROUPS.values() for name in names.split()]
    built = build(
        args.sources,
        out=out,
        tokenizer=args.tokenizer,
        progress=not (args.quiet or args.json),
        **{name: getattr(args, name) for name in names},
    )
    named = {"path": str(out), "fingerprint": built.store.fingerprint}
    result = {**named, **built.report, "already_built": built.already_built}
    emit(args, result, lambda console: _draw(console, result))
    return 0


def _draw(console: Console, report: dict[str, Any]) -> None:
    from rich.markup import escape

    if report["already_built"]:
        console.print("already built: the store is there, and nothing had to be done")
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
    for kind, count in report.get("dirt", {}).items():
        console.print(f"  {kind}: in {count:,} records")
    if chats := report.get("untrained_chats"):
        noun = "chat trains" if chats == 1 else "chats train"
        console.print(f"  {chats:,} {noun} nothing: {report['untrained_reason']}")
    if template := report.get("settings", {}).get("template"):
        console.print(f"  chat template: {escape(printable(template))}")
    if end := report.get("end_token"):
        token = escape(printable(end["token"]))
        console.print(f"  documents end with {token} ({end['id']}), from {end['source']}")
    console.print(f"  tokenizer engine: {', '.join(report['tokenizer_engines'])}")
    page = f" · {PAGE_NAME} in the store" if is_reported(Path(report["path"])) else ""
    console.print(f"  fingerprint {report['fingerprint'][:16]}{page}")
