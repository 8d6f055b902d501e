"""Parse the command line and run one subcommand.

A subcommand is a module with `configure(parser)` and `run(args) -> int`; it is imported
only when it is asked for. Exit codes: 0 fine, 1 the thing looked at is wrong, 2 the
command was used wrongly, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
from collections.abc import Sequence

import tokenreel
from tokenreel.errors import ConfigError, TokenreelError

GROUPS = {
    "make a store": {
        "train-tokenizer": "train a tokenizer on files of text",
        "check-template": "try to break a chat template",
        "build": "turn text or chats into a store",
        "convert": "turn any layout into a store, or a store into another layout",
    },
    "feed a training run": {
        "plan": "say what rows a recipe makes and how it mixes them",
        "feed": "dry-run a recipe: speed, latency, padding, shares",
        "stream": "dry-run a stream: speed, utilisation, documents, retries",
        "explain": "say which documents a step shows",
        "where": "say which steps show a document",
    },
    "look and check": {
        "show": "say what a folder of tokens is",
        "verify": "check every byte and every index of a store",
        "prepare": "validate a folder of token shards, print the flags to train with",
    },
    "this installation": {
        "demo": "see it work, in a minute, on this machine",
        "doctor": "say what is installed and what is lacking",
        "completion": "print a script by which your shell completes commands",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(next((word for word in words if not word.startswith("-")), None))
    args = parser.parse_args(words)
    _start_logging(args)
    try:
        return _load(args.command).run(args)
    except TokenreelError as error:
        _report(error, args)
        return 2 if isinstance(error, ConfigError) else 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept", file=sys.stderr)
        return 130


def _parser(wanted: str | None) -> argparse.ArgumentParser:
    parser = _root_parser()
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog="tokenreel", help=argparse.SUPPRESS
    )
    for name, help_line in COMMANDS.items():
        sentence = f"{help_line[0].upper()}{help_line[1:]}."
        command = commands.add_parser(name, help=help_line, description=sentence)
        if wanted in (name, EVERY):
            _load(name).configure(command)
        _add_common(command)
    return parser


EVERY = "*"


def full_parser() -> argparse.ArgumentParser:
    """Return the parser with the options of every command, for what describes them all."""
    return _parser(EVERY)


def _root_parser() -> argparse.ArgumentParser:
    """Return the parser without commands; its help lists them by what they are for."""
    listing = "\n\n".join(
        f"{group}:\n" + "\n".join(f"  {name:<17}{line}" for name, line in commands.items())
        for group, commands in GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog="tokenreel",
        usage="tokenreel COMMAND …",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Immutable token stores, and batches that are a pure function of\n"
        f"(store, recipe, step).\n\n{listing}",
        epilog='"tokenreel COMMAND --help" tells the options of a command; every command takes\n'
        "--json and --quiet.",
    )
    parser.add_argument("--version", action="version", version=f"tokenreel {tokenreel.__version__}")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="no progress bars, no notices")


def _load(name: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"tokenreel.cli.{name.replace('-', '_')}")


def _start_logging(args: argparse.Namespace) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        format="%(levelname)s: %(message)s",
        level=logging.ERROR if args.quiet else logging.INFO,
    )


def _report(error: TokenreelError, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(error.as_dict(), indent=2))
    print(f"error: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
