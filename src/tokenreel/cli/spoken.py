"""Errors in the language of the command line: keywords become flags.

Errors name settings as Python does, since most callers are programs: `text_key`,
`restart=True`, `file_pattern=…`. Who typed a command is told `--text-key`, `--restart`,
`--file-pattern …`, where the command has that flag. What is said to programs alone (a clause
about a keyword that no flag stands for) is left out if something else remains to be said.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Set

from tokenreel.cli.flags import flag_of
from tokenreel.errors import TokenreelError

# A keyword with its value, unless it is inside of a word, a path or a quotation.
GIVEN = re.compile(r"""(?<![\w"'./=-])([a-z][a-z_]*)=(True|False|None|"[^"]*"|'[^']*'|…|\d+)""")
# A keyword by itself is known by its underscore, or by what is said of it.
NAMED = re.compile(r"""(?<![\w"'./=-])([a-z]+(?:_[a-z]+)+)(?![\w"'./=(-])""")
CHANGED = re.compile(r"""(?<![\w"'./=-])([a-z][a-z_]*)(?=: [^;]* → )""")
WRONG = re.compile(r"(?<=\bbad )([a-z]+)$|^([a-z]+)(?= does not apply )")


def spoken(error: TokenreelError, flags: Set[str]) -> str:
    """Return the message of an error as the user of a command with these flags should read it.

    >>> error = TokenreelError("bad text_key", remedy='pass on_bad="skip"; see restart=True')
    >>> spoken(error, {"--text-key", "--on-bad"})
    'bad --text-key; pass --on-bad skip'
    """
    return for_command(error, flags)._message()


def for_command(error: TokenreelError, flags: Set[str]) -> TokenreelError:
    """Return an error with the same parts, in which keywords are the flags of a command."""
    told = type(error).__new__(type(error))
    told.__dict__.update(error.__dict__)
    told.what = in_flags(error.what, flags)
    if isinstance(error.expected, str):
        told.expected = in_flags(error.expected, flags)
    told.remedy = None if error.remedy is None else _remedy(error.remedy, flags)
    return told


class FlagFormatter(logging.Formatter):
    """Log lines in which keywords are the flags of a command."""

    def __init__(self, pattern: str, flags: Set[str]) -> None:
        super().__init__(pattern)
        self._flags = flags

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; "(dtype=…)" becomes "(--dtype …)"."""
        return in_flags(super().format(record), self._flags)


def in_flags(text: str, flags: Set[str]) -> str:
    """Return the text with the flags for the keywords in it.

    >>> in_flags("end_token=None, or val_frac and shuffle", {"--no-end-token", "--val-frac"})
    '--no-end-token, or --val-frac and shuffle'
    """
    text = GIVEN.sub(lambda found: _given(found, flags), text)
    for pattern in (CHANGED, WRONG, NAMED):
        text = pattern.sub(lambda found: _named(found, flags), text)
    return text


QUOTES = "\"'"


def _given(found: re.Match[str], flags: Set[str]) -> str:
    flag, value = flag_of(found[1]), found[2]
    no = f"--no-{flag[2:]}"
    if value in ("None", "False"):
        return no if no in flags else found[0]
    if flag not in flags:
        return found[0]
    return flag if value == "True" else f"{flag} {value.strip(QUOTES)}"


def _named(found: re.Match[str], flags: Set[str]) -> str:
    flag = flag_of(found[0])
    return flag if flag in flags else found[0]


def _remedy(remedy: str, flags: Set[str]) -> str:
    clauses = [in_flags(clause, flags) for clause in remedy.split("; ")]
    sayable = [clause for clause in clauses if not GIVEN.search(clause)]
    return "; ".join(sayable or clauses)
