"""Ended from outside: SIGTERM and a closed terminal unwind the command as Ctrl-C does.

Every `finally` and `with` on the way runs, so temporary files go and workers are stopped.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# `timeout` sends its signal twice, to the process and to its group; who insists comes later.
REPEATED_SECONDS = 1.0
AGAIN_SECONDS = 0.02


class Ended(KeyboardInterrupt):
    """The process was told to end by a signal; passes all that a KeyboardInterrupt passes."""


@dataclass(slots=True)
class Watch:
    """The first signal that came, or None."""

    number: int | None = None
    pid: int = field(default_factory=os.getpid)
    time: float = 0.0
    comes_again: bool = False

    def take(self, number: int, frame: FrameType | None) -> None:
        """Raise Ended, unless the signal was handled before, or came to another process."""
        if os.getpid() != self.pid:  # a worker that was forked and has not set its own
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        is_repeated = self.number is not None and time.monotonic() - self.time < REPEATED_SECONDS
        if self.number is None:
            self.number, self.time = number, time.monotonic()
        if not is_repeated:
            raise Ended(number)

    def raise_again(self) -> None:
        """Raise Ended again if it was lost: an exception in a hook around a fork is only printed.

        A little later, because what is raised here is lost as well.
        """
        number, self.number = self.number, None
        assert number is not None, "Ended is raised for a signal"
        signal.signal(signal.SIGALRM, lambda alarm, frame: self.take(number, frame))
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        self.comes_again = True


def is_kept(args: argparse.Namespace) -> bool:
    """Tell whether a command that has ended left an unfinished store with finished work in it."""
    target = {"build": "out", "convert": "target"}.get(args.command or "")
    if target is None:
        return False
    # Only here: who merely starts a command does not wait for numpy.
    from tokenreel.store.build_folder import BUILD_FOLDER, FINISHED_CHUNKS, PLAN_NAME
    from tokenreel.store.shard_record import RECORD_SUFFIX
    from tokenreel.store.shard_writer import shard_name

    folder = Path(getattr(args, target))
    if not (folder / BUILD_FOLDER / PLAN_NAME).is_file():
        return False
    shards = folder.glob(f"*/{shard_name(0)}{RECORD_SUFFIX}")
    return any(shards) or any((folder / BUILD_FOLDER).glob(FINISHED_CHUNKS))


@contextmanager
def ended_by_signals(watch: Watch) -> Iterator[None]:
    """Raise Ended in the main thread where a signal comes that ends a process by default.

    One that is ignored, as under nohup, stays ignored; one that the program handles, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may ask for signals
        return
    taken = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, watch.take)
    hook = sys.unraisablehook

    def look_at(lost: sys.UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, Ended):
            watch.raise_again()
        else:
            hook(lost)

    sys.unraisablehook = look_at
    try:
        yield
    finally:
        if watch.comes_again:
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
