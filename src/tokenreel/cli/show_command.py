"""tokenreel show PATH: what a folder of tokens is."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from tokenreel.builder.report import told_template
from tokenreel.builder.report_files import REPORT_NOTE
from tokenreel.canonical import canonical_json
from tokenreel.cli.output import count, emit, facts_table, printable, size
from tokenreel.cli.store_flags import add_open_options, open_options
from tokenreel.cli.tokenizer_option import REMEDY, add_tokenizer
from tokenreel.errors import TokenreelError
from tokenreel.inspect.store_facts import describe
from tokenreel.layouts.open_store import open_store
from tokenreel.store.store import Store

BAR_WIDTH = 40
HEAD_TOKENS = 64
HEAD_IDS = 16
HEAD_CHARACTERS = 400


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("path", help="a store, or a folder of another layout")
    add_open_options(parser)
    add_tokenizer(parser, purpose="decode the first document with it")


def run(args: argparse.Namespace) -> int:
    """Describe the store."""
    store = open_store(args.path, **open_options(args))
    facts = describe(store)
    facts["chat_template"] = _template(store)
    facts["head"] = _head(store, args.tokenizer, force=args.force_tokenizer)
    emit(args, facts, lambda console: _draw(console, facts))
    return 0


def _draw(console: Console, facts: dict[str, Any]) -> None:
    tokenizer = facts["tokenizer"] or {}
    facts_table(
        console,
        {
            "path": facts["path"],
            "layout": facts["layout"],
            "dtype": f"{facts['dtype']} (from {facts['dtype_source']})",
            "vocabulary": count(facts["vocab_size"]),
            "tokenizer": tokenizer.get("name") or tokenizer.get("kind") or "not recorded",
            **({"chat template": facts["chat_template"]} if facts["chat_template"] else {}),
            "tokens": count(facts["tokens"]),
            "documents": count(facts["documents"]),
            "checksums": "every block, SHA-256"
            if facts["has_checksums"]
            else "none in this layout",
            "fingerprint": facts["fingerprint"][:16],
        },
    )
    for name, split in facts["splits"].items():
        _draw_split(console, name, split)
    if facts["head"]:
        head = facts["head"]
        console.print(f"\n[bold]first document[/bold] ({escape(str(head['origin']))})")
        ids = " ".join(map(str, head["ids"][:HEAD_IDS]))
        console.print(escape(printable(head["text"])) if head["text"] else f"{ids} …")
        if head["record"] is not None:
            told = canonical_json(head["record"])[:HEAD_CHARACTERS]
            console.print(f"record: {escape(printable(told))}")


def _template(store: Store) -> str | None:
    """Return the chat template that a build recorded, with its arguments and date."""
    note = store.manifest.notes.get(REPORT_NOTE) if store.manifest is not None else None
    settings = note.get("settings") if isinstance(note, Mapping) else None
    return told_template(settings) or None if isinstance(settings, Mapping) else None


def _draw_split(console: Console, name: str, split: dict[str, Any]) -> None:
    kinds = ("turns", "groups", "weights", "provenance", "records")
    extras = [kind for kind in kinds if split[kind]]
    console.print(
        f"\n[bold]{escape(name)}[/bold]: {split['shards']:,} shards, {size(split['bytes'])}, "
        f"{split['tokens']:,} tokens, {count(split['documents'])} documents"
        + (f", with {', '.join(extras)}" if extras else "")
    )
    histogram = split["lengths"]["histogram"]
    if not histogram:
        return
    most = max(bucket["documents"] for bucket in histogram)
    sampled = " (a sample)" if split["lengths"]["sampled"] else ""
    console.print(f"  tokens per document{sampled}")
    for bucket in histogram:
        low, number = bucket["at_least_tokens"], bucket["documents"]
        bar = "█" * round(BAR_WIDTH * number / most) or ("▏" if number else "")
        high = max(2 * low - 1, low)
        span = f"{low:,}" if high == low else f"{low:,}–{high:,}"
        console.print(f"  {span:>21} {bar} {number:,}")


def _head(store: Store, tokenizer_spec: str | None, *, force: bool) -> dict[str, object] | None:
    """Return the beginning of the first document, decoded where a tokenizer is at hand."""
    split, record = next(iter(store.splits.values())), None
    if split.has_documents and split.num_documents:
        document = split.document(0)
        ids, record = document.tokens[:HEAD_TOKENS].tolist(), document.record
        origin = str(document.provenance) if document.provenance else f"{split.name}, document 0"
    else:
        ids = split.read(0, min(HEAD_TOKENS, split.num_tokens)).tolist()
        origin = f"{split.name}, from the first token"
    text = _decode(ids, store, tokenizer_spec, force=force)
    return {"origin": origin, "ids": ids, "text": text, "record": record}


def _decode(ids: list[int], store: Store, spec: str | None, *, force: bool) -> str | None:
    recorded = store.tokenizer or {}
    spec = spec or recorded.get("path") or ("byte" if recorded.get("kind") == "byte" else None)
    if spec is None:
        return None
    from tokenreel.text.tokenizers import load_tokenizer
    from tokenreel.text.tokenizers.forced import decode_what_is_known

    try:
        tokenizer = load_tokenizer(spec)
    except TokenreelError:
        if spec == recorded.get("path"):
            return None  # the tokenizer is recorded but not at hand
        raise
    if force:
        return decode_what_is_known(tokenizer, ids)
    store.check_tokenizer(tokenizer.fingerprint, remedy=REMEDY)
    return tokenizer.decode(ids)
