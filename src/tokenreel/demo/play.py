"""The demo: its acts in order; every line it prints is what really happened."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from tokenreel.demo.questions import ask, flip_a_bit
from tokenreel.demo.stage import Stage
from tokenreel.demo.stores import make_stores
from tokenreel.demo.trial import train_and_kill
from tokenreel.errors import MissingExtraError

NEEDED = {"tokenizers": "text", "torch": "torch"}
NEXT = """\
docs/                      a page for each job
examples/                  scripts to copy: torch, packed SFT, torchrun, JAX, Trainer, Ray, Megatron
FORMAT.md                  the store, byte by byte
tokenreel --help           every command
tokenreel demo --out DIR   play again and keep the stores, to look around in them"""


class Play:
    """All acts, in one folder."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._stage = Stage(folder, console)

    def run(self) -> int:
        """Play all acts; 0 if everything held."""
        for package, extra in NEEDED.items():
            if find_spec(package) is None:
                raise MissingExtraError(package, extra=extra, purpose="the demo")
        held = [act(self._stage) for act in (make_stores, train_and_kill, ask, flip_a_bit)]
        self._stage.act("Where to look next")
        self._stage.console.print(NEXT, soft_wrap=True)
        if not all(held):
            self._stage.console.print("[bold red]something did not hold: this is a bug[/bold red]")
        return 0 if all(held) else 1
