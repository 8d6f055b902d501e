"""tokenreel show PATH: what a folder of tokens is, and what its documents say."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from tokenreel.canonical import canonical_json
from tokenreel.cli.output import count, emit, facts_table, printable, size
from tokenreel.cli.store_flags import add_open_options, open_options
from tokenreel.cli.token_drawing import chips, draw_legend, draw_tokens
from tokenreel.cli.tokenizer_option import add_tokenizer
from tokenreel.display import count_of
from tokenreel.errors import ConfigError
from tokenreel.inspect.recorded_tokenizer import tokenizer_of
from tokenreel.inspect.store_facts import describe
from tokenreel.layouts.open_store import open_store
from tokenreel.store.store import Store
from tokenreel.text.tokenizers import Tokenizer
from tokenreel.text.tokenizers.forced import decode_what_is_known
from tokenreel.text.tokenizers.id_texts import IdTexts
from tokenreel.view.store_pages import recorded_template

BAR_WIDTH = 40
HEAD_TOKENS = 64
HEAD_IDS = 16
RECORD_CHARACTERS = 400


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("path", help="a store, or a folder of another layout")
    parser.add_argument(
        "--document", type=int, metavar="N", help="show this document, whole; the first is 0"
    )
    parser.add_argument("--split", metavar="NAME", help="of this split (default: the first)")
    add_open_options(parser)
    add_tokenizer(parser, purpose="show documents by it (default: that of the store, if found)")


def run(args: argparse.Namespace) -> int:
    """Describe the store, or one of its documents."""
    store = open_store(args.path, **open_options(args))
    split = next(iter(store.splits)) if args.split is None else args.split
    tokenizer = _tokenizer(store, args.tokenizer, force=args.force_tokenizer)
    if args.document is None:
        shown = _head(store, split, tokenizer)
    else:
        shown = _document(store, split, args.document, tokenizer)
    facts = describe(store)
    facts["chat_template"] = recorded_template(store)
    facts["head" if args.document is None else "document"] = shown

    def draw(console: Console) -> None:
        if args.document is None:
            _draw(console, facts)
        _draw_document(console, facts, shown, tokenizer)

    emit(args, facts, draw)
    return 0


def _tokenizer(store: Store, given: str | None, *, force: bool) -> Tokenizer | None:
    recorded = store.tokenizer or {}
    if given is None and recorded.get("kind") == "byte" and store.tokenizer_fingerprint is None:
        given = "byte"  # whose ids are known by its name
    return tokenizer_of(store, given, force=force)


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


def _draw_document(
    console: Console, facts: dict[str, Any], shown: dict[str, Any], tokenizer: Tokenizer | None
) -> None:
    """Draw a document: where it comes from, its tokens, and what else is kept of it."""
    if "number" in shown:
        trained = sum(weight > 0 for weight in shown["weights"])
        counts = f"{count_of(len(shown['ids']), 'token')}, {trained:,} trained"
        name = f"{escape(printable(shown['split']))} {shown['number']:,}"
        origin = "" if shown["origin"] is None else f" · {escape(printable(shown['origin']))}"
        console.print(f"[bold]{name}[/bold]  {counts}{origin}")
    else:
        console.print(f"\n[bold]first document[/bold] ({escape(printable(shown['origin']))})")
    ids, more = shown["ids"], shown["left"]
    if tokenizer is not None:
        draw_tokens(console, chips(ids, shown["weights"], IdTexts(tokenizer)))
    else:
        most = HEAD_IDS if "number" not in shown else len(ids)
        console.print(" ".join(map(str, ids[:most])) + " …" * (most < len(ids)))
    if more and tokenizer is not None:
        console.print(f"… and {count_of(more, 'more token')}: --document 0 shows all", style="dim")
    if shown["record"] is not None:
        told = canonical_json(shown["record"])[:RECORD_CHARACTERS]
        console.print(f"record: {escape(printable(told))}")
    if tokenizer is not None:
        draw_legend(console)


def _draw_split(console: Console, name: str, split: dict[str, Any]) -> None:
    kinds = ("turns", "groups", "weights", "provenance", "records")
    extras = [kind for kind in kinds if split[kind]]
    console.print(
        f"\n[bold]{escape(printable(name))}[/bold]: {count_of(split['shards'], 'shard')}, "
        f"{size(split['bytes'])}, {count_of(split['tokens'], 'token')}, "
        f"{count_of(split['documents'], 'document')}"
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


def _head(store: Store, split_name: str, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return the beginning of the first document, decoded where a tokenizer is at hand."""
    split, record, left = store[split_name], None, 0
    if split.has_documents and split.num_documents:
        document = split.document(0)
        ids, record = document.tokens[:HEAD_TOKENS].tolist(), document.record
        weights = document.loss_weights[:HEAD_TOKENS].tolist()
        left = len(document) - len(ids)
        origin = str(document.provenance) if document.provenance else f"{split.name}, document 0"
    else:
        ids = split.read(0, min(HEAD_TOKENS, split.num_tokens)).tolist()
        weights = np.ones(len(ids)).tolist()
        origin = f"{split.name}, from the first token"
    text = _text(ids, tokenizer)
    shown = {"origin": origin, "ids": ids, "weights": weights, "text": text, "record": record}
    return {**shown, "left": left}


def _document(
    store: Store, split_name: str, number: int, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """Return a document, whole."""
    split = store[split_name]
    count = split.num_documents if split.has_documents else None
    if count is None:
        raise ConfigError(
            "documents are not known",
            where=store.path,
            expected="a layout that says where documents end",
            remedy="declare the end token with eos_id",
        )
    if not 0 <= number < count:
        raise ConfigError(
            f"split {split.name} has no such document",
            where=store.path,
            expected=f"0 to {count - 1:,}",
            actual=number,
        )
    document = split.document(number)
    ids = document.tokens.tolist()
    return {
        "split": split.name,
        "number": number,
        "origin": str(document.provenance) if document.provenance else None,
        "ids": ids,
        "weights": document.loss_weights.tolist(),
        "text": _text(ids, tokenizer),
        "record": document.record,
        "left": 0,
    }


def _text(ids: list[int], tokenizer: Tokenizer | None) -> str | None:
    return None if tokenizer is None else decode_what_is_known(tokenizer, ids)
