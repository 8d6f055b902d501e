"""Keep other libraries quiet while they open something: what went wrong, we say once."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

# Those that `datasets` talks through, on its own and while it tries again.
LOGGERS = ("datasets", "huggingface_hub", "httpx", "httpx2", "httpcore", "fsspec", "urllib3")


@contextmanager
def hushed(*, bars: bool = False) -> Iterator[None]:
    """Silence warnings and log records below CRITICAL, and with `bars` progress bars, in the block.

    Everything is as it was when the block ends: a caller's own settings stay in force.
    """
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if bars:
            stack.enter_context(_without_bars())
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


@contextmanager
def _without_bars() -> Iterator[None]:
    import datasets.utils  # type: ignore[import-untyped]
    import huggingface_hub.utils

    libraries = (datasets.utils, huggingface_hub.utils)
    shown = [bars for bars in libraries if not bars.are_progress_bars_disabled()]
    for bars in shown:
        bars.disable_progress_bars()
    try:
        yield
    finally:
        for bars in shown:
            bars.enable_progress_bars()
