"""A path that can be one, what lies there, and the order of names with numbers in them.

Python asks the system about a path and lets through what comes back: ValueError for a NUL or
half a character (a lone surrogate), OSError for a name too long or a folder one may not enter.
Asked here once, these are ConfigErrors that show the path; what is simply not there is left
to the caller, who knows what was looked for.
"""

from __future__ import annotations

import errno
import re
import stat
from os import PathLike
from pathlib import Path

from tokenreel.config.hints import brief
from tokenreel.errors import ConfigError

_DIGITS = re.compile(r"(\d+)")
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF)  # as pathlib sees it
SPECIAL_FILES = {
    "a pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
}


def usable_path(path: str | PathLike[str]) -> Path:
    """Return the path, or raise ConfigError if no file can have it or its folder is closed to us.

    >>> usable_path("a\\0b")
    Traceback (most recent call last):
    tokenreel.errors.ConfigError: not a path: embedded null byte (got 'a\\x00b')
    """
    try:
        place = Path(path)
        place.stat()
    except OSError as error:
        if error.errno not in ABSENT:
            raise ConfigError(f"not a path: {error.strerror}", actual=brief(path)) from error
    except (TypeError, ValueError) as error:
        said = "it cannot be encoded" if isinstance(error, UnicodeError) else error
        raise ConfigError(f"not a path: {said}", actual=brief(path)) from error
    return place


def special_kind(path: Path) -> str | None:
    """Return "a pipe", "a socket" or "a device"; None for a file, a folder, or nothing."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return None
    return next((name for name, is_kind in SPECIAL_FILES.items() if is_kind(mode)), None)


def natural_key(name: str) -> tuple[list[str | int], str]:
    """Return the sort key that orders numbers in names by their value.

    >>> sorted(["t_10", "t_2", "t_02"], key=natural_key)
    ['t_02', 't_2', 't_10']
    """
    runs = _DIGITS.split(name)  # text and digits take turns, beginning with text
    return [int(run) if place % 2 else run for place, run in enumerate(runs)], name
