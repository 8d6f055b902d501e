"""`tokenreel train-tokenizer`: learn a vocabulary from text or chats."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.markup import escape

from tokenreel.cli.flags import size_argument
from tokenreel.cli.output import emit, printable, size
from tokenreel.config.sizes import SIZE_HELP
from tokenreel.progress import bars
from tokenreel.text.chats.templates import BUILT_IN, CHATML, load_template, specials_for
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer
from tokenreel.text.tokenizers.train import (
    DEFAULT_ROUND_TO,
    DEFAULT_SAMPLE_BYTES,
    DEFAULT_VOCAB_SIZE,
    SUFFIXES,
    Trained,
    train_tokenizer,
)

ALL = "all"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "sources",
        nargs="+",
        help="files of text, JSONL or Parquet, folders, globs, hf:owner/name, or a named source",
    )
    parser.add_argument(
        "--out",
        required=True,
        help="the file to write: .json for byte-level BPE, .model for SentencePiece",
    )
    _add_reading(parser.add_argument_group("reading"))
    _add_vocabulary(parser.add_argument_group("the vocabulary"))


def _add_reading(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--text-key",
        help='field of the text, or of the chat (default: "text"; of chats the whole record)',
    )
    group.add_argument(
        "--chat",
        action="store_true",
        help="records are chats; the text of all turns is learned from",
    )
    group.add_argument(
        "--on-bad",
        choices=("error", "skip"),
        default="error",
        help="what to do with a record that cannot be used (default: error)",
    )
    group.add_argument(
        "--sample-bytes",
        type=_sample_argument,
        default=DEFAULT_SAMPLE_BYTES,
        metavar="SIZE",
        help="if there is more text, take so much of it, evenly from all files (default: 200M); "
        f'{SIZE_HELP}, or "{ALL}"',
    )


def _add_vocabulary(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--kind", choices=sorted(SUFFIXES), help="default: as the ending of --out says"
    )
    group.add_argument(
        "--vocab-size",
        type=int,
        default=DEFAULT_VOCAB_SIZE,
        metavar="IDS",
        help="how many ids there are, control tokens included (default: %(default)s)",
    )
    group.add_argument(
        "--round-to",
        type=int,
        default=DEFAULT_ROUND_TO,
        metavar="IDS",
        help="round that up to a multiple, which is faster to compute with; what it adds is "
        "learned too (default: %(default)s; 1: do not round)",
    )
    group.add_argument(
        "--template",
        metavar="NAME|FILE",
        help="have the control tokens of this chat template, and one to end documents "
        f"({', '.join(BUILT_IN)}, or a .toml file; default: chatml)",
    )
    group.add_argument(
        "--special",
        action="append",
        metavar="STRING",
        help="have this control token; repeat for more, in place of those of a template",
    )


def _sample_argument(text: str) -> int | None:
    return None if text == ALL else size_argument(text)


def run(args: argparse.Namespace) -> int:
    """Train, open what was written, and say what it is."""
    template = CHATML if args.template is None else load_template(args.template)
    with bars(quiet=args.quiet) as progress:
        trained = train_tokenizer(
            args.sources,
            out=args.out,
            kind=args.kind,
            vocab_size=args.vocab_size,
            round_to=args.round_to,
            specials=args.special or specials_for(template),
            text_key=args.text_key,
            chat=args.chat,
            on_bad=args.on_bad,
            sample_bytes=args.sample_bytes,
            progress=progress,
        )
    tokenizer = load_tokenizer(args.out, engine="reference")
    result = {
        "out": args.out,
        "kind": trained.kind,
        "vocab_size": tokenizer.vocab_size,
        "control_ids": dict(tokenizer.control_ids),
        "fingerprint": tokenizer.fingerprint,
        "text_bytes": trained.text_bytes,
        "source_bytes": trained.source_bytes,
        "is_sample": trained.is_sample,
        "skipped": trained.skipped.as_dict(),
    }
    emit(args, result, lambda console: _draw(console, args, trained, tokenizer))
    return 0


def _draw(
    console: Console, args: argparse.Namespace, trained: Trained, tokenizer: Tokenizer
) -> None:
    ids, short = f"{tokenizer.vocab_size:,} ids", tokenizer.fingerprint[:12]
    lines = [f"{args.out}: {trained.kind}, {ids}, {short}"]
    if tokenizer.vocab_size != args.vocab_size:
        lines[0] += f" ({args.vocab_size:,} rounded up to a multiple of {args.round_to:,})"
    lines.append(f"  learned from {_amount(trained)}")
    lines += [
        f"  skipped {count:,}: {printable(reason)}"
        for reason, count in trained.skipped.reasons.items()
    ]
    lines += [f"  {number:>6}  {text}" for text, number in tokenizer.control_ids.items()]
    for line in lines:
        console.print(escape(line))


def _amount(trained: Trained) -> str:
    text, whole = size(trained.text_bytes), trained.source_bytes
    if not trained.is_sample:
        return f"{text} of text, all there is"
    if whole is None:
        return f"{text} of text, the beginning of streams (--sample-bytes for more)"
    return f"{text} of text, a sample of {size(whole)} of files (--sample-bytes for more)"
