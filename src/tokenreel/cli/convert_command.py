"""`tokenreel convert SRC DST`: any readable layout to another."""

from __future__ import annotations

import argparse
import time

from tokenreel.cli.flags import size_argument
from tokenreel.cli.output import emit_text
from tokenreel.cli.store_flags import add_open_options, open_options
from tokenreel.config.sizes import SIZE_HELP
from tokenreel.layouts.convert import TARGETS, Conversion, convert
from tokenreel.layouts.flat_writer import FILE_FORMATS
from tokenreel.layouts.open_store import open_store
from tokenreel.progress import bars
from tokenreel.store.manifest import TOKEN_DTYPES


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", metavar="SRC", help="a folder of tokens, or a file or prefix")
    parser.add_argument("target", metavar="DST", help="the folder to write; it must not exist yet")
    parser.add_argument(
        "--to", choices=TARGETS, default="native", help="layout of DST (default: native)"
    )
    reading = parser.add_argument_group("reading SRC")
    add_open_options(reading)
    writing = parser.add_argument_group("writing DST")
    writing.add_argument(
        "--shard-size", type=size_argument, metavar="SIZE", help=f"native, flat: {SIZE_HELP}"
    )
    writing.add_argument(
        "--out-dtype",
        choices=TOKEN_DTYPES,
        help="native, flat: token dtype (default: the smallest that fits)",
    )
    writing.add_argument(
        "--file-format", choices=FILE_FORMATS, default="npy", help="flat shards (default: npy)"
    )


def run(args: argparse.Namespace) -> int:
    """Convert, and say what was written."""
    source = open_store(args.source, **open_options(args))
    begin = time.perf_counter()
    with bars(quiet=args.quiet or args.json) as progress:
        conversion = convert(
            source,
            args.target,
            to=args.to,
            dtype=args.out_dtype,
            shard_size=args.shard_size,
            file_format=args.file_format,
            progress=progress,
        )
    seconds = time.perf_counter() - begin
    if args.json or not args.quiet:
        facts = _as_dict(conversion, source.layout, args.source, seconds)
        emit_text(args, facts, _summary(conversion, source.layout, seconds))
    return 0


def _as_dict(conversion: Conversion, layout: str, source: str, seconds: float) -> dict[str, object]:
    return {
        "source": str(source),
        "source_layout": layout,
        "target": str(conversion.path),
        "target_layout": conversion.layout,
        "tokens": conversion.num_tokens,
        "documents": conversion.num_documents,
        "left_out": list(conversion.left_out),
        "tokens_left_out": conversion.tokens_left_out,
        "seconds": round(seconds, 3),
    }


def _summary(conversion: Conversion, layout: str, seconds: float) -> str:
    lines = [f"{conversion.path}: {layout} to {conversion.layout} in {seconds:.1f} s"]
    for name, tokens in conversion.num_tokens.items():
        documents = conversion.num_documents[name]
        lines.append(f"  {name}: {tokens:,} tokens in {documents:,} documents")
    if conversion.left_out:
        lines.append(f"  left out, for lack of a place: {', '.join(conversion.left_out)}")
    if conversion.tokens_left_out:
        lines.append(f"  left out: {conversion.tokens_left_out:,} tokens of no document")
    return "\n".join(lines)
