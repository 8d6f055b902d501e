"""Find the native kernels, or say why the numpy reference serves instead.

`tokenreel._native` is built from the C files beside this module. Where it could
not be built everything works, slower; `TOKENREEL_NATIVE=0` asks for that. Each
room keeps the numpy reference of its kernels next to the code that uses them and
asks `extension()` which of the two to call.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from pathlib import Path
from types import ModuleType

from tokenreel.errors import DamageError, LimitError, TokenreelError

logger = logging.getLogger(__name__)


@functools.cache
def extension() -> ModuleType | None:
    """Return the compiled module, or None where numpy serves."""
    if os.environ.get("TOKENREEL_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("tokenreel._native")
    except ImportError as error:
        logger.warning("native kernels not available, numpy serves instead (%s)", error)
        return None


def status() -> str:
    """Say in one line which kernels are in use, and why."""
    if extension() is not None:
        return "native"
    if os.environ.get("TOKENREEL_NATIVE") == "0":
        return "numpy (TOKENREEL_NATIVE=0)"
    return "numpy (the C extension was not built; reinstall where a C compiler is present)"


def lost_page(path: str | None, offset: int, num_bytes: int) -> TokenreelError:
    """Return the error of a page that was gone when a kernel came to it (native/guard.c).

    path: the mapped file, num_bytes: its size when it was mapped; None: it is no file of ours,
    so the page is one that a batch was to be written to.
    """
    if path is None:
        return LimitError(
            "the memory that a batch is written to cannot be had",
            remedy="if it is shared memory, make room there (/dev/shm)",
        )
    try:
        size: int | None = Path(path).stat().st_size
    except OSError:
        size = None
    what = f"the file was cut off while it was mapped: the page at offset {offset:,} is gone"
    if size is not None and size >= num_bytes:
        what = f"the page at offset {offset:,} of the mapped file cannot be read from its disk"
    return DamageError(
        what,
        where=path,
        expected=f"{num_bytes:,} bytes",
        actual=None if size is None else f"{size:,} bytes",
        remedy="restore the file or build the store again, then start again",
    )
