"""`tokenreel train-tokenizer`: learn a vocabulary from text or chats."""

from __future__ import annotations

import argparse
from dataclasses import fields

from rich.console import Console
from rich.markup import escape

from tokenreel.cli.flags import add_flags, meaning_of, size_argument
from tokenreel.cli.output import emit, printable, size
from tokenreel.progress import bars
from tokenreel.text.chats.templates import BUILT_IN, CHATML, load_template, specials_for
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer
from tokenreel.text.tokenizers.train import Trained, train_tokenizer
from tokenreel.text.tokenizers.training_settings import TokenizerTraining

# The first are words, Python's alone or spelled otherwise here.
OWN_FLAGS = ("sources", "texts", "chats", "progress", "sample_bytes", "specials")
ALL = "all"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command: the settings of the training."""
    by_name = {item.name: item for item in fields(TokenizerTraining)}
    parser.add_argument("sources", nargs="+", help=meaning_of(by_name["sources"]))
    flags = add_flags(parser, TokenizerTraining, left_out=OWN_FLAGS)
    parser.add_argument(
        "--sample-bytes",
        type=_sample_argument,
        default=by_name["sample_bytes"].default,
        metavar="SIZE",
        help=meaning_of(by_name["sample_bytes"]).replace("None", ALL),
    )
    parser.add_argument(
        "--template",
        metavar="NAME|FILE",
        help="have the control tokens of this chat template, and one to end documents "
        f"({', '.join(BUILT_IN)}, or a .toml file; default: chatml)",
    )
    parser.add_argument(
        "--special",
        action="append",
        metavar="STRING",
        help="have this control token; repeat for more, in place of those of a template",
    )
    parser.set_defaults(settings=flags)


def _sample_argument(text: str) -> int | None:
    return None if text == ALL else size_argument(text)


def run(args: argparse.Namespace) -> int:
    """Train, open what was written, and say what it is."""
    template = CHATML if args.template is None else load_template(args.template)
    with bars(quiet=args.quiet) as progress:
        trained = train_tokenizer(
            args.sources,
            specials=args.special or specials_for(template),
            sample_bytes=args.sample_bytes,
            progress=progress,
            **{name: getattr(args, name) for name in args.settings},
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
