"""Flags made of the keywords of a function: names, types, choices, defaults and help.

The signature and the docstring of the function are the one place where they are said:

    val_frac: float = 0.0                     --val-frac NUMBER
    shuffle: Literal["none", "buffer"]        --shuffle {none,buffer}
    deduplicate: bool = False                 --deduplicate
    provenance: bool = True                   --no-provenance
    end_token: str | None = "auto"            --end-token TEXT, --no-end-token
    shard_size: int | str, chunk_bytes: int   --shard-size 128M
"""

from __future__ import annotations

import argparse
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

from tokenreel.config.hints import choices_of, parts_of
from tokenreel.config.keywords import hints_of
from tokenreel.config.sizes import parse_size
from tokenreel.errors import ConfigError

SIZES = ("_size", "_bytes")


def size_argument(text: str) -> int:
    """Return the bytes of an argument: the `type` of an option, whose error keeps its words."""
    try:
        return parse_size(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


METAVARS = {int: "N", float: "NUMBER", str: "TEXT", size_argument: "SIZE"}


def flag_of(name: str) -> str:
    """Return the flag of a keyword.

    >>> flag_of("val_frac")
    '--val-frac'
    """
    return f"--{name.replace('_', '-')}"


def add_flags(
    parser: argparse._ActionsContainer,
    function: Callable[..., object],
    names: Iterable[str],
    **defaults: Any,
) -> None:
    """Add the flags of these keywords; `defaults` are those of the command line alone."""
    parameters = inspect.signature(function).parameters
    hints, meanings = hints_of(function), described(function)
    for name in names:
        default = defaults.get(name, parameters[name].default)
        _add(parser, name, hints[name], default, meanings.get(name))


def _add(
    parser: argparse._ActionsContainer, name: str, hint: Any, default: Any, meaning: str | None
) -> None:
    settings: dict[str, Any] = {"dest": name, "default": default, "help": meaning}
    if default is inspect.Parameter.empty:
        settings = {"dest": name, "required": True, "help": meaning}
    kinds = [kind for kind in (bool, int, float, str) if kind in (typing.get_args(hint) or (hint,))]
    if kinds[:1] == [bool]:
        if default is not False:
            denied = {**settings, "help": meaning and f"do not {meaning.partition(' (')[0]}"}
            parser.add_argument(f"--no-{flag_of(name)[2:]}", action="store_false", **denied)
        if default is not True:
            parser.add_argument(flag_of(name), action="store_true", **settings)
        return
    read = size_argument if name.endswith(SIZES) else (kinds or [str])[0]
    choices = choices_of(hint)
    is_path = hint is Any or any(typing.get_origin(part) is PathLike for part in parts_of(hint))
    metavar = "PATH" if is_path else METAVARS[read]
    settings |= {"choices": choices} if choices else {"type": read, "metavar": metavar}
    parser.add_argument(flag_of(name), **settings)
    if default not in (None, inspect.Parameter.empty) and type(None) in typing.get_args(hint):
        none = {"dest": name, "action": "store_const", "const": None, "default": default}
        parser.add_argument(f"--no-{flag_of(name)[2:]}", help="none at all", **none)


@functools.cache
def described(function: Callable[..., object]) -> dict[str, str]:
    """Return what the docstring of a function says of each keyword.

    >>> def paint(*, colour: str, coats: int) -> None:
    ...     '''Paint.
    ...
    ...     colour
    ...         of the paint
    ...     coats
    ...         how many
    ...         of them
    ...     '''
    >>> described(paint)
    {'colour': 'of the paint', 'coats': 'how many of them'}
    """
    found = re.findall(r"^(\w+)\n((?:    .*\n?)+)", inspect.getdoc(function) or "", re.MULTILINE)
    return {name: _for_commands(" ".join(text.split())) for name, text in found}


def _for_commands(meaning: str) -> str:
    """Return a meaning without what is said to callers in Python.

    >>> _for_commands("a path; in Python also a list (default: 1; in the command line: all)")
    'a path (default: all)'
    """
    meaning = re.sub(r"; in Python [^(;]*[^(; ]", "", meaning)
    meaning = re.sub(r"[^ :]+; in the command line: ", "", meaning)
    return meaning.replace("%", "%%")  # argparse's own sign
