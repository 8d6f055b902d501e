"""Where the demo plays: a folder in which commands run, and a console that shows them."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, RenderableType

from tokenreel.cli.main import main


class Stage:
    """One folder, one console."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder = folder
        self.console = console

    def act(self, title: str) -> None:
        """Begin an act."""
        self.console.print()
        self.console.rule(f"[bold]{title}[/bold]", align="left")

    def say(self, text: str) -> None:
        """Say something that is so."""
        self.console.print(text, style="italic", soft_wrap=True)

    def draw(self, drawing: RenderableType) -> None:
        """Show a table."""
        self.console.print(drawing)

    def command(self, *words: str) -> None:
        """Run a command of tokenreel in the folder, and show both."""
        self._show(words)
        with contextlib.chdir(self.folder):
            main(list(words))

    def killed_command(self, *words: str, when: Callable[[], bool]) -> bool:
        """Run a command in a process of its own and SIGKILL it; False if it ended before."""
        self._show(words)
        command = [sys.executable, "-m", "tokenreel", *words, "--quiet"]
        silent = subprocess.DEVNULL
        with subprocess.Popen(command, cwd=self.folder, stdout=silent, stderr=silent) as process:
            try:
                while process.poll() is None and not when():
                    time.sleep(0.001)
            finally:
                process.kill()
        return process.returncode == -signal.SIGKILL

    def _show(self, words: tuple[str, ...]) -> None:
        self.console.print(f"[bold]$ tokenreel {shlex.join(words)}[/bold]", soft_wrap=True)
