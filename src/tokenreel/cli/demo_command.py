"""tokenreel demo: see it work, in a minute, on this machine."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from tokenreel.cli.output import drawing_console, emit
from tokenreel.demo.play import Play
from tokenreel.errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--out", type=Path, help="play here and keep everything")


def run(args: argparse.Namespace) -> int:
    """Play the demo in a folder that is removed afterwards, or in --out."""
    if not args.json:
        return _play(args.out)
    with redirect_stdout(sys.stderr):  # the play is for people
        code = _play(args.out)
    emit(args, {"held": code == 0, "out": args.out and str(args.out)}, lambda console: None)
    return code


def _play(out: Path | None) -> int:
    console = drawing_console(soft_wrap=False)
    if out is None:
        with tempfile.TemporaryDirectory(prefix="tokenreel-demo-") as folder:
            return Play(Path(folder), console).run()
    if out.exists():
        raise ConfigError("the folder exists", where=out, remedy="choose a new one")
    out.mkdir(parents=True)
    return Play(out, console).run()
