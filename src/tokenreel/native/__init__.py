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
from types import ModuleType

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
