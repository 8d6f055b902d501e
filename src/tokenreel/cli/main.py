"""Parse the command line and run one subcommand.

A subcommand is a module with `configure(parser)` and `run(args) -> int`; it is imported
only when it is asked for. Exit codes: 0 fine, 1 the thing looked at is wrong, 2 the
command was used wrongly, 128 + n ended by signal n: 130 Ctrl-C, 143 SIGTERM, 129 the terminal
was closed, 141 whoever read the output stopped reading.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

import tokenreel
from tokenreel.cli.output import drop_output, report_error, report_misuse, report_signal
from tokenreel.cli.signals import Watch, ended_by_signals, is_kept
from tokenreel.cli.spoken import FlagFormatter, for_command
from tokenreel.cli.usage import MisuseError, Parser
from tokenreel.config.hints import nearest_words
from tokenreel.errors import ConfigError, TokenreelError

GROUPS = {
    "make a store": {
        "train-tokenizer": "train a tokenizer on files of text",
        "check-template": "try to break a chat template, compare it with transformers",
        "render": "show a chat as a template renders it, and what of it is trained",
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
        "view": "look at a run, a store or a stream's state in the browser",
        "show": "say what a folder of tokens is",
        "diff": "say what differs between two recipes, states or stores, and where first",
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
    _shorten_start(words)
    as_json, watch = "--json" in words, Watch()
    args = argparse.Namespace(command=None, flags=frozenset())
    try:
        with ended_by_signals(watch):
            args = _parse(words)
            _start_logging(args)
            code: int = _load(args.command).run(args)
            return code
    except BaseException as error:
        if watch.number is not None:  # whatever became of it on the way out
            return _ended(watch.number, args)
        return _failed(error, args, as_json=as_json)


def _failed(error: BaseException, args: argparse.Namespace, *, as_json: bool) -> int:
    """Report an error of use or data and return its exit code; raise any other."""
    if isinstance(error, MisuseError):
        report_misuse(error, as_json=as_json)
        return 2
    if isinstance(error, TokenreelError):
        report_error(for_command(error, args.flags), as_json=as_json)
        return 2 if isinstance(error, ConfigError) else 1
    if isinstance(error, BrokenPipeError):
        drop_output()
        return 128 + signal.SIGPIPE
    if isinstance(error, KeyboardInterrupt):
        return _ended(signal.SIGINT, args)
    raise error


def _ended(number: int, args: argparse.Namespace) -> int:
    report_signal(number, is_kept=is_kept(args))
    return 128 + number


def _shorten_start(words: Sequence[str]) -> None:
    """Shorten the start: 50 ms without garbage collection, 30 ms without numpy's threads."""
    gc.set_threshold(100_000)  # loading makes many objects, and none of them is garbage
    if words[:1] == ["build"]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """Return what the words mean, and the `flags` of their command; MisuseError for wrong use."""
    at = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    name = words[at] if at < len(words) else ""
    wanted = name if name in COMMANDS else next(iter(nearest_words(name, COMMANDS)), None)
    parser, commands = _parsers(wanted)
    parser.refuse_unknown_options(words[:at])
    if not words:
        raise MisuseError(parser.misused("no command given").error, usage=parser.format_help())
    if name in commands:
        commands[name].refuse_unknown_options(words[at + 1 :])
    args, left_over = parser.parse_known_args(words)
    command = commands[args.command]
    if left_over:
        raise command.misused(f"more words than it takes: {' '.join(map(repr, left_over))}")
    args.flags = frozenset(command._option_string_actions)
    return args


def _parsers(wanted: str | None) -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of all, and those of the commands; `wanted` one knows its options."""
    parser = _root_parser()
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog="tokenreel", help=argparse.SUPPRESS
    )
    made = {name: commands.add_parser(name, help=line) for name, line in COMMANDS.items()}
    for name, command in made.items():
        command.description = f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}."
        if wanted in (name, EVERY):
            _load(name).configure(command)
        _add_common(command)
    return parser, made


EVERY = "*"


def full_parser() -> argparse.ArgumentParser:
    """Return the parser with the options of every command, for what describes them all."""
    return _parsers(EVERY)[0]


def _root_parser() -> Parser:
    """Return the parser without commands; its help lists them by what they are for."""
    listing = "\n\n".join(
        f"{group}:\n" + "\n".join(f"  {name:<17}{line}" for name, line in commands.items())
        for group, commands in GROUPS.items()
    )
    parser = Parser(
        prog="tokenreel",
        usage="tokenreel COMMAND …",
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
    return importlib.import_module(f"tokenreel.cli.{name.replace('-', '_')}_command")


def _start_logging(args: argparse.Namespace) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FlagFormatter("%(levelname)s: %(message)s", args.flags))
    level = logging.ERROR if args.quiet else logging.INFO
    logging.basicConfig(handlers=[handler], level=level)


if __name__ == "__main__":
    sys.exit(main())
