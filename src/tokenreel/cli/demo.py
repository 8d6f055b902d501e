"""tokenreel demo: see it work, in a minute, on this machine."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from tokenreel.demo.play import Play
from tokenreel.errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--out", type=Path, help="play here and keep everything")


def run(args: argparse.Namespace) -> int:
    """Play the demo in a folder that is removed afterwards, or in --out."""
    console = Console(highlight=False)
    if args.out is None:
        with tempfile.TemporaryDirectory(prefix="tokenreel-demo-") as folder:
            return Play(Path(folder), console).run()
    if args.out.exists():
        raise ConfigError("the folder exists", where=args.out, remedy="choose a new one")
    args.out.mkdir(parents=True)
    return Play(args.out, console).run()
