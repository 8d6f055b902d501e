"""One door for every layout.

`open_store` recognises the layout of a folder and opens it in place; nothing is
copied. A folder of a known layout that is damaged is an error of that layout; a
folder of none says what was looked for.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Protocol

import numpy as np

from tokenreel.config.keywords import check_keywords
from tokenreel.config.paths import usable_path
from tokenreel.errors import ConfigError, LayoutError, NoStoreError, StoreError, TokenreelError
from tokenreel.layouts import cache_pretrain, cache_sft, episode_files, flat, megatron
from tokenreel.store import reader
from tokenreel.store.file_arrays import check_mode
from tokenreel.store.open_options import OpenOptions, check_vocab_size, parse_dtype
from tokenreel.store.store import Store


class Layout(Protocol):
    """What a module of a layout has; one that knows two layouts has a class for the second."""

    NAME: str

    def fits(self, path: Path, /) -> str | None:
        """Say why a path is not of this layout; None if it is."""

    def open_layout(self, path: Path, options: OpenOptions, /) -> Store:
        """Open a path that is of this layout."""


# In the order they are tried: from the most telling signs to the fewest.
LAYOUTS: tuple[Layout, ...] = (
    reader,
    megatron,
    episode_files,
    cache_sft,
    cache_pretrain,
    flat.BareTokens,
    flat,
)


@check_keywords
def open_store(
    path: str | PathLike[str],
    *,
    layout: str | None = None,
    dtype: str | np.dtype | None = None,
    vocab_size: int | None = None,
    eos_id: int | None = None,
    file_pattern: str | None = None,
    mode: str = "mmap",
) -> Store:
    """Open a folder of tokens, whatever its layout, in constant time.

    dtype and vocab_size win over metadata of foreign layouts. eos_id finds the
    documents of a layout that has no index by their end token, once, and keeps the
    result. mode is "mmap" or "pread" (a copy per read, but safe from SIGBUS).
    """
    place = usable_path(path)
    check_vocab_size(vocab_size)
    options = OpenOptions(
        dtype=None if dtype is None else parse_dtype(dtype, where="dtype"),
        vocab_size=vocab_size,
        eos_id=eos_id,
        file_pattern=file_pattern,
        mode=check_mode(mode),
    )
    try:
        found = _named(layout) if layout else _recognise(place)
        store = found.open_layout(place, options)
    except TokenreelError:
        raise
    except OSError as error:  # a folder that may not be entered, a disk that fails
        where = error.filename or place
        raise StoreError(f"cannot be read: {error.strerror}", where=where) from error
    return store


def _named(layout: str) -> Layout:
    for module in LAYOUTS:
        if layout == module.NAME:
            return module
    names = ", ".join(module.NAME for module in LAYOUTS)
    raise ConfigError("unknown layout", expected=names, actual=repr(layout))


def _recognise(path: Path) -> Layout:
    reasons = {}
    for module in LAYOUTS:
        reason = module.fits(path)
        if reason is None:
            return module
        reasons[module.NAME] = reason
    if not path.exists() and not path.with_name(path.name + ".idx").exists():
        raise NoStoreError("there is no such file or folder", where=path)
    tried = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise LayoutError(
        f"this is no layout that tokenreel knows ({tried})",
        where=path,
        remedy='build a store with StoreWriter, or name the layout (layout="…")',
    )
