"""Ended from outside: SIGTERM and a closed terminal unwind the command as Ctrl-C does.

Every `finally` and `with` on the way runs, so temporary files go and workers are stopped.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """The process was told to end by a signal; passes all that a KeyboardInterrupt passes."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise Ended in the main thread where a signal comes that ends a process by default.

    One that is ignored, as under nohup, stays ignored; one that the program handles, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may ask for signals
        return
    taken = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    for other in SIGNALS:  # a second signal must not cut the unwinding short
        if signal.getsignal(other) is _end:
            signal.signal(other, signal.SIG_IGN)
    raise Ended(number)
