"""Flags made of declared settings (config/settings.py): names, types, choices, defaults and help.

The fields of a dataclass are the one place where they are said:

    val_frac: float = 0.0                     --val-frac NUMBER
    shuffle: Literal["none", "buffer"]        --shuffle {none,buffer}
    deduplicate: bool = False                 --deduplicate
    provenance: bool = True                   --no-provenance
    end_token: str | None = "auto"            --end-token TEXT, --no-end-token
    shard_size: int | str, with size=True     --shard-size 128M
    template_arg: Mapping[str, Any]           --template-arg NAME=VALUE, again for more
"""

from __future__ import annotations

import argparse
import re
import typing
from collections.abc import Container, Mapping
from dataclasses import MISSING, Field, fields
from os import PathLike
from typing import Any

from tokenreel.config.hints import choices_of, hints_of, parts_of
from tokenreel.config.sizes import parse_size
from tokenreel.errors import ConfigError


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
    parser: argparse.ArgumentParser, kind: type, *, left_out: Container[str], **defaults: Any
) -> list[str]:
    """Add the flags of settings under the headings of their groups, and return their names.

    `left_out` are settings of Python alone; `defaults` are those of the command line alone.
    """
    hints, names = hints_of(kind), []
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for item in fields(kind):
        if item.name not in left_out:
            title = item.metadata["group"].lower()
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            default = defaults.get(item.name, item.default)
            _add(groups[title], item, hint=hints[item.name], default=default)
            names.append(item.name)
    return names


def _add(parser: argparse._ActionsContainer, item: Field[Any], *, hint: Any, default: Any) -> None:
    name, meaning = item.name, meaning_of(item)
    settings: dict[str, Any] = {"dest": name, "default": default, "help": meaning}
    if default is MISSING:
        settings = {"dest": name, "required": True, "help": meaning}
    kinds = [kind for kind in (bool, int, float, str) if kind in (typing.get_args(hint) or (hint,))]
    if kinds[:1] == [bool]:
        if default is not False:
            denied = {**settings, "help": f"do not {meaning.partition(' (')[0]}"}
            parser.add_argument(f"--no-{flag_of(name)[2:]}", action="store_false", **denied)
        if default is not True:
            parser.add_argument(flag_of(name), action="store_true", **settings)
        return
    if any(typing.get_origin(part) is Mapping for part in parts_of(hint)) and not choices_of(hint):
        parser.add_argument(flag_of(name), action=_Named, metavar="NAME=VALUE", **settings)
        return
    read = size_argument if item.metadata["size"] else (kinds or [str])[0]
    choices = [choice for choice in choices_of(hint) if choice not in item.metadata["hidden"]]
    is_path = hint is Any or any(typing.get_origin(part) is PathLike for part in parts_of(hint))
    metavar = "PATH" if is_path else METAVARS[read]
    settings |= {"choices": choices} if choices else {"type": read, "metavar": metavar}
    parser.add_argument(flag_of(name), **settings)
    if default not in (None, MISSING) and type(None) in typing.get_args(hint):
        none = {"dest": name, "action": "store_const", "const": None, "default": default}
        parser.add_argument(f"--no-{flag_of(name)[2:]}", help="none at all", **none)


class _Named(argparse.Action):
    """Take NAME=VALUE, once for each name; the value is JSON where it is, else text."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option: object = None
    ) -> None:
        from tokenreel.text.chats.model_template import parse_argument  # few commands have chats

        try:
            name, value = parse_argument(values)
        except ConfigError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), name: value})


def meaning_of(item: Field[Any]) -> str:
    """Return what a setting means, without what is said to callers in Python."""
    return _for_commands(item.metadata["meaning"])


def _for_commands(meaning: str) -> str:
    """Return a meaning without what is said to callers in Python.

    >>> _for_commands("a path; in Python also a list (default: 1; in the command line: all)")
    'a path (default: all)'
    """
    meaning = re.sub(r"; in Python [^(;]*[^(; ]", "", meaning)
    meaning = re.sub(r"[^ :]+; in the command line: ", "", meaning)
    return meaning.replace("%", "%%")  # argparse's own sign
