"""Progress that a person can watch and a program never sees.

Work takes a `Progress` and calls `advance`; what happens with it is the caller's
choice: `SILENT` drops it, `bars()` keeps one line on standard error up to date while somebody
can see it: in a terminal, or in a notebook.

    building ━━━━━━━━━━━━━━━━━━━━──────────  67 %  281.6 of 420.8 MB  93.1 MB/s  0:01 left

Nothing is drawn to a pipe or a file, and no thread is started: the line changes when work
reports, at most ten times a second. Results go to standard output, progress and log lines to
standard error, so `--json` output can be piped.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from tokenreel.config.hints import brief
from tokenreel.errors import ConfigError

DRAW_SECONDS = 0.1
RATE_SECONDS = 10.0  # the rate is that of the last seconds
BAR_WIDTH = 30
MIN_BAR_WIDTH = 5
NOTEBOOK_WIDTH = 100


class Progress(Protocol):
    """What work reports to."""

    def start(self, task: str, *, total: int | None, unit: str = "") -> None:
        """Begin a task of `total` units (None: not known)."""

    def advance(self, amount: int = 1) -> None:
        """Report `amount` more units of the current task as done."""

    def note(self, text: str) -> None:
        """Give some words to be shown behind the bar, the next time it is drawn."""


class Silent:
    """Drop all progress."""

    def start(self, task: str, *, total: int | None, unit: str = "") -> None:
        """Do nothing."""

    def advance(self, amount: int = 1) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


SILENT = Silent()


@contextmanager
def shown(progress: bool | Progress) -> Iterator[Progress]:
    """Give the progress that a caller's argument means: True draws `bars`, False nothing."""
    if isinstance(progress, bool):
        with bars(quiet=not progress) as drawn:
            yield drawn
        return
    if not all(hasattr(progress, name) for name in ("start", "advance")):
        raise ConfigError(
            "bad progress",
            expected="True, False, or an object with start and advance",
            actual=brief(progress),
        )
    yield progress


@contextmanager
def bars(*, quiet: bool = False) -> Iterator[Progress]:
    """Draw progress on standard error while the block runs, if a person is there to see it."""
    if quiet or not (sys.stderr.isatty() or _is_notebook()):
        yield SILENT
        return
    line = _Line(sys.stderr)
    try:
        yield line
    finally:
        line.clear()


@dataclass(slots=True)
class _Line:
    """One line of a terminal, drawn again over itself; a new task takes the line."""

    stream: TextIO
    task: str = ""
    total: int | None = None
    unit: str = ""
    done: int = 0
    words: str = ""
    seen: deque[tuple[float, int]] = field(default_factory=deque)  # (time, done) of late
    drawn_at: float = float("-inf")
    drawn_width: int = 0

    def start(self, task: str, *, total: int | None, unit: str = "") -> None:
        """Begin a task, and show it at once."""
        self.task, self.total, self.unit = task, total, unit
        self.done, self.words = 0, ""
        self.seen.clear()
        self._draw(time.monotonic())

    def advance(self, amount: int = 1) -> None:
        """Count, and draw if the last time was a while ago."""
        self.done += amount
        now = time.monotonic()
        if now - self.drawn_at >= DRAW_SECONDS:
            self._draw(now)

    def note(self, text: str) -> None:
        """Keep the words for the next drawing."""
        self.words = text

    def clear(self) -> None:
        """Draw the end of the task, and empty the line."""
        if self.task:
            self._draw(time.monotonic())
        self._write("")
        self.drawn_width = 0

    def _draw(self, now: float) -> None:
        self.seen.append((now, self.done))
        while now - self.seen[0][0] > RATE_SECONDS and len(self.seen) > 2:
            self.seen.popleft()
        since, before = self.seen[0]
        rate = (self.done - before) / (now - since) if now > since else 0.0
        width = shutil.get_terminal_size().columns if self.stream.isatty() else NOTEBOOK_WIDTH
        self._write(self._spelled(rate, width - 1))
        self.drawn_at = now

    def _spelled(self, rate: float, width: int) -> str:
        """Return the line: figures first, then words, then a bar, as far as there is room."""
        text = "  ".join(self._figures(rate))
        if self.words and len(self.task) + len(text) + len(self.words) + 4 <= width:
            text += f"  {self.words}"
        bar = self._bar(width - len(self.task) - len(text) - 3)
        return "  ".join(filter(None, (f"{self.task} {bar}" if bar else self.task, text)))[:width]

    def _figures(self, rate: float) -> Iterator[str]:
        if self.total is not None:
            yield f"{self._share:4.0%}".replace("%", " %")
            yield _part_of(_amount(self.done, self.unit), _amount(self.total, self.unit))
        elif self.done:
            yield _amount(self.done, self.unit)
        if rate > 0:
            yield f"{_amount(rate, self.unit)}/s"
            if self.total is not None:
                yield f"{_clock(max(0, self.total - self.done) / rate)} left"

    @property
    def _share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 1.0

    def _bar(self, room: int) -> str:
        width = min(BAR_WIDTH, room)
        if self.total is None or width < MIN_BAR_WIDTH:
            return ""
        full = round(width * self._share)
        return "━" * full + "─" * (width - full)

    def _write(self, text: str) -> None:
        self.stream.write(f"\r{text.ljust(self.drawn_width)}" if text else self._blank())
        self.stream.flush()
        self.drawn_width = len(text)

    def _blank(self) -> str:
        return f"\r{' ' * self.drawn_width}\r" if self.drawn_width else ""


def _is_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook: its output is seen by somebody."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _amount(number: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if number < 1000:
            shown = f"{number:,.0f}" if not prefix else f"{number:.1f}"
            return f"{shown} {prefix}{unit}"
        number /= 1000
    return f"{number:,.1f} P{unit}"


def _part_of(part: str, whole: str) -> str:
    """Return "3.1 of 8.4 MB": the unit once, where both have the same.

    >>> _part_of("3.1 MB", "8.4 MB"), _part_of("950.0 kB", "8.4 MB")
    ('3.1 of 8.4 MB', '950.0 kB of 8.4 MB')
    """
    number, _, unit = part.partition(" ")
    return f"{number if whole.endswith(f' {unit}') else part} of {whole}"


def _clock(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
