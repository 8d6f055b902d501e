"""`tokenreel train-tokenizer`: learn a vocabulary from text."""

from __future__ import annotations

import argparse
import json

from tokenreel.progress import bars
from tokenreel.text.tokenizers import NGPT_SPECIALS, load_tokenizer
from tokenreel.text.tokenizers.train import DEFAULT_VOCAB_SIZE, SUFFIXES, train_tokenizer


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "sources",
        nargs="+",
        help="files of text, JSONL or Parquet, folders, globs, hf:owner/name, or a named source",
    )
    parser.add_argument("--text-key", default="text", help="field that holds the text")
    parser.add_argument("--out", required=True, help="the file to write (.model or .json)")
    parser.add_argument("--kind", choices=sorted(SUFFIXES), default="sentencepiece")
    parser.add_argument(
        "--vocab-size",
        type=int,
        default=DEFAULT_VOCAB_SIZE,
        help="ids besides the control tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--special",
        action="append",
        metavar="STRING",
        help="a control token; repeat for more (default: the four of the ngpt chat format)",
    )


def run(args: argparse.Namespace) -> int:
    """Train, open what was written, and say what it is."""
    specials = args.special or list(NGPT_SPECIALS.values())
    with bars(quiet=args.quiet) as progress:
        train_tokenizer(
            args.sources,
            args.out,
            text_key=args.text_key,
            kind=args.kind,
            vocab_size=args.vocab_size,
            specials=specials,
            progress=progress,
        )
    tokenizer = load_tokenizer(args.out, engine="reference")
    result = {
        "out": args.out,
        "kind": args.kind,
        "vocab_size": tokenizer.vocab_size,
        "control_ids": dict(tokenizer.control_ids),
        "fingerprint": tokenizer.fingerprint,
    }
    if args.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"{args.out}: {args.kind}, {tokenizer.vocab_size:,} ids, {tokenizer.fingerprint[:12]}")
    for text, number in tokenizer.control_ids.items():
        print(f"  {number:>6}  {text}")
    return 0
