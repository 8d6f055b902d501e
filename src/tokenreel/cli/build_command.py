"""tokenreel build SOURCES… --out DIR --tokenizer FILE: from text or chats to a store."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.builder.build import build
from tokenreel.builder.build_settings import BuildSettings
from tokenreel.builder.report import told_template
from tokenreel.builder.report_files import PAGE_NAME, is_reported
from tokenreel.cli.flags import add_flags, meaning_of
from tokenreel.cli.output import emit, printable, size
from tokenreel.display import count_of

if TYPE_CHECKING:
    from rich.console import Console


PYTHON_ALONE = ("sources", "texts", "chats", "progress", "watch")  # the first is no flag, but words
SHOWN_PLACES = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command: the settings of a build."""
    sources = next(item for item in fields(BuildSettings) if item.name == "sources")
    parser.add_argument("sources", nargs="+", help=meaning_of(sources))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    flags = add_flags(
        parser,
        BuildSettings,
        left_out=PYTHON_ALONE,
        workers=cores,
        chat=False,
        pairs=False,
        prompts=False,
    )
    parser.set_defaults(settings=flags)


def run(args: argparse.Namespace) -> int:
    """Build the store and print the summary; one that is there already is not built again."""
    out = Path(args.out)
    built = build(
        args.sources,
        progress=not (args.quiet or args.json),
        **{name: getattr(args, name) for name in args.settings},
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
        f"[bold]{escape(report['path'])}[/bold]: {count_of(report['documents'], 'document')} read, "
        f"{size(report['text_bytes'])} of text"
        + (f", {per_token:.2f} bytes per token" if per_token else "")
    )
    for name, split in report["splits"].items():
        documents = count_of(split["documents"], "document")
        console.print(f"  {name}: {documents}, {count_of(split['tokens'], 'token')}")
    parts = " + ".join(
        f"{name} {ledger[name]:,}" for name in ("trained", "masked", "truncated", "dropped")
    )
    console.print(f"  tokens: {parts} = {ledger['total']:,}")
    for reason, counts in report["dropped"].items():
        console.print(f"  left out, {reason}: {count_of(counts['documents'], 'document')}")
    for reason, count in report["skipped"].items():
        told = count_of(count, "record")
        console.print(f"  skipped, {escape(printable(reason))}: {told}")
    for place in report["skipped_places"][:SHOWN_PLACES]:
        where = f"{place.get('file', 'memory')}:{place.get('row', -1) + 1}"
        console.print(f"    {escape(printable(where))}: {escape(printable(place['reason']))}")
    for kind, count in report.get("dirt", {}).items():
        console.print(f"  {escape(printable(kind))}: in {count_of(count, 'record')}")
    if chats := report.get("untrained_chats"):
        noun = "chat trains" if chats == 1 else "chats train"
        console.print(f"  {chats:,} {noun} nothing: {report['untrained_reason']}")
    if template := told_template(report.get("settings", {})):
        console.print(f"  chat template: {escape(printable(template))}")
    if end := report.get("end_token"):
        token = escape(printable(end["token"]))
        console.print(f"  documents end with {token} ({end['id']}), from {end['source']}")
    console.print(f"  tokenizer engine: {', '.join(report['tokenizer_engines'])}")
    page = f" · {PAGE_NAME} in the store" if is_reported(Path(report["path"])) else ""
    console.print(f"  fingerprint {report['fingerprint'][:16]}{page}")
