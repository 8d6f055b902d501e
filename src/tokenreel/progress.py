"""Progress that a person can watch and a program never sees.

Work takes a `Progress` and calls `advance`; what happens with it is the caller's
choice: `SILENT` drops it, `bars()` draws one rich bar per task on standard error
when that is a terminal and is silent otherwise. Results go to standard output,
progress and log lines to standard error, so `--json` output can be piped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Progress(Protocol):
    """What work reports to."""

    def start(self, task: str, *, total: int | None, unit: str = "") -> None:
        """Begin a task of `total` units (None: not known)."""

    def advance(self, amount: int = 1) -> None:
        """Report `amount` more units of the current task as done."""


class Silent:
    """Drop all progress."""

    def start(self, task: str, *, total: int | None, unit: str = "") -> None:
        """Do nothing."""

    def advance(self, amount: int = 1) -> None:
        """Do nothing."""


SILENT = Silent()


class _Bars:
    def __init__(self, rich_progress: Any) -> None:
        self._rich = rich_progress
        self._task: Any = None

    def start(self, task: str, *, total: int | None, unit: str = "") -> None:
        self._task = self._rich.add_task(task, total=total, unit=unit)

    def advance(self, amount: int = 1) -> None:
        self._rich.advance(self._task, amount)


@contextmanager
def bars(*, quiet: bool = False) -> Iterator[Progress]:
    """Draw bars on standard error while the block runs, if a person is there to see them."""
    if quiet or not sys.stderr.isatty():
        yield SILENT
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        _rate_column(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        yield _Bars(drawn)


def _rate_column() -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{_short(speed)}{task.fields['unit']}/s" if speed else "")

    return Rate()


def _short(number: float) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if number < 1000:
            return f"{number:.0f} {prefix}" if not prefix else f"{number:.1f} {prefix}"
        number /= 1000
    return f"{number:.1f} P"
