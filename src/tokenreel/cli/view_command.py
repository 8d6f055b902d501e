"""tokenreel view TARGET [SECOND]: a local page to wind through a run, a store, a stream's state."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tokenreel.cli.output import emit_at_once, emit_text, notice
from tokenreel.cli.recipe_option import add_overrides
from tokenreel.cli.store_flags import add_open_options, open_options
from tokenreel.cli.tokenizer_option import add_tokenizer
from tokenreel.errors import ConfigError
from tokenreel.feed.trace import check_within
from tokenreel.view.answers import Answers
from tokenreel.view.guards import is_loopback
from tokenreel.view.serve import LOOPBACK, serve
from tokenreel.view.subject import Subject, open_subjects

MAX_PORT = 65_535
EPILOG = """\
The page is served to this machine alone, at an address that nobody guesses; nothing is sent
elsewhere, and nothing is changed. The browser opens a temporary file that you alone can read, and
that leads to the address; a browser that may read no such file (a snap) needs the printed one. Of
two targets --set is for the second: "tokenreel view r.toml r.toml --set seed=3" shows what another
seed changes. With --export one view becomes a file that needs no server: a step of a recipe, a
store with samples, what differs between two."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "target", help="a recipe, a store of any layout, or the state of a stream or feed (.json)"
    )
    parser.add_argument(
        "second", nargs="?", help="another one: the page then shows what differs between them"
    )
    parser.add_argument("--step", type=int, help="the step to begin with (default: 0)")
    parser.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    parser.add_argument(
        "--host",
        default=LOOPBACK,
        help=f"the address to serve at (default: {LOOPBACK}, which no other machine reaches)",
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    parser.add_argument(
        "--export", metavar="FILE.html", help="write one view into a file instead of serving it"
    )
    parser.add_argument(
        "--rows",
        metavar="START:STOP",
        help="with --export: which rows of the step go into the file (default: the first 8)",
    )
    add_overrides(parser)
    parser.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="PATH",
        help="a store that the batches of a feed's state are made of (may be repeated)",
    )
    add_tokenizer(parser, purpose="decode tokens with it (default: that of the store, if found)")
    add_open_options(parser.add_argument_group("a store of another layout"))
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Serve the page until it is interrupted, or write it into a file."""
    if not 0 <= args.port <= MAX_PORT:
        raise ConfigError("bad port", expected=f"0 to {MAX_PORT:,}", actual=args.port)
    if args.rows is not None and args.export is None:
        raise ConfigError("rows are chosen for an export alone", remedy="name the file: export=…")
    subjects = open_subjects(
        [args.target, args.second] if args.second is not None else [args.target],
        overrides=args.set,
        stores=args.store,
        tokenizer=args.tokenizer,
        force_tokenizer=args.force_tokenizer,
        options=open_options(args),
    )
    step = _first_step(subjects, args.step)
    answers = Answers(subjects, first_step=step)
    if args.export is not None:
        return _export(answers, args)
    return _serve(answers, args, fragment="" if args.step is None else f"#step={step}")


def _serve(answers: Answers, args: argparse.Namespace, *, fragment: str) -> int:
    if not is_loopback(args.host):
        notice(args, "other machines can reach this page: who has its address reads the data")

    def announce(address: str) -> None:
        emit_at_once(args, {"address": address}, address)
        if "SSH_CONNECTION" in os.environ:
            port = urlsplit(address).port
            there = f"ssh -L {port}:127.0.0.1:{port} …"
            notice(args, f"from your own machine: {there}, then open it there")
        notice(args, "Ctrl-C ends it")

    serve(
        answers,
        host=args.host,
        port=args.port,
        announce=announce,
        open_browser=not args.no_browser,
        fragment=fragment,
    )
    return 0


def _first_step(subjects: Sequence[Subject], step: int | None) -> int:
    """Return the step to begin with; ConfigError if a run does not have it."""
    for subject in subjects if step is not None else ():
        check_within(subject.feed, step or 0)
    return step or 0


def _export(answers: Answers, args: argparse.Namespace) -> int:
    from tokenreel.view.export import export_page, parse_rows

    path = Path(args.export)
    size = export_page(answers, path, rows=parse_rows(args.rows))
    emit_text(args, {"path": str(path), "bytes": size}, f"{path}: {size:,} bytes")
    return 0
