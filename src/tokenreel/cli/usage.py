"""Parsers that answer wrong use with the nearest right word and the usage of that command.

Nothing is abbreviated: "--worker" is an error that names "--workers", because a prefix that
means one option today is ambiguous, or another option, as soon as a command gets a new one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from tokenreel.config.hints import did_you_mean, nearest_words
from tokenreel.errors import ConfigError

COMMON = ("--json", "--quiet")  # options of every command
_NUMBER = re.compile(r"-\d[\d_]*|-\d*\.\d+")  # no option, though it begins like one
_BAD_VALUE = re.compile(r"argument ([^:]+): invalid (int|float) value: (.*)", re.DOTALL)
_KINDS = {"int": "a whole number", "float": "a number"}


class MisuseError(Exception):
    """What was wrong, as an error of ours, and how the command is used; main() reports both."""

    def __init__(self, error: ConfigError, *, usage: str) -> None:
        super().__init__(str(error))
        self.error, self.usage = error, usage


class Help(argparse.RawDescriptionHelpFormatter):
    """Help in which a number is N, where argparse would repeat the option in capitals."""

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        if action.type in (int, float):
            return "N"
        return super()._get_default_metavar_for_optional(action)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises MisuseError where argparse prints and exits."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=Help, **options)
        self.allow_abbrev = False

    def short_usage(self) -> str:
        """Return the usage without the options that may be left out, but for a word for them."""
        needed = [action for action in self._actions if action.required]
        if self.usage is not None or len(needed) == len(self._actions):
            return self.format_usage()
        formatter = self._get_formatter()
        formatter.add_usage(None, needed, [])
        return f"{formatter.format_help().rstrip()} [options]\n"

    def misused(
        self, what: str, *, expected: str | None = None, actual: object = None, remedy: str = ""
    ) -> MisuseError:
        """Return the error for wrong use; without a remedy it points to the help."""
        lists = "commands" if self._subparsers else "options"
        error = ConfigError(
            what,
            where=self.prog,
            expected=expected,
            actual=actual,
            remedy=remedy or f'"{self.prog} --help" lists the {lists}',
        )
        return MisuseError(error, usage=self.short_usage())

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found wrong."""
        found = _BAD_VALUE.fullmatch(message)
        if found is not None:
            raise self.misused(f"bad {found[1]}", expected=_KINDS[found[2]], actual=found[3])
        raise self.misused(message.removeprefix("argument "))

    def refuse_unknown_options(self, words: Sequence[str]) -> None:
        """Raise MisuseError for the first word that looks like an option and is not known.

        Asked before argparse is: with "--outt x" it would complain that "--out" is missing.
        """
        known = self._option_string_actions
        for word in words:
            if word == "--":
                return
            name = word.partition("=")[0]
            if len(word) < 2 or word[0] != "-" or " " in name or _NUMBER.fullmatch(word):
                continue
            if name not in known:
                raise self.misused(f"unknown option {name}", remedy=self._advice(name))

    def _advice(self, name: str) -> str:
        if self._subparsers and name in COMMON:
            return f"give {name} behind the command"
        return did_you_mean(name, self._option_string_actions, likeness=0.6, show=str) or ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise MisuseError for a word outside the choices, and name the nearest choice."""
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        # uint8 is not meant for uint32
        near = did_you_mean(str(value), names, likeness=0.75, show=str) or ""
        if isinstance(action, argparse._SubParsersAction):
            raise self._unknown_command(action, str(value), near)
        option = "/".join(action.option_strings) or str(action.metavar or action.dest)
        raise self.misused(
            f"bad {option}", expected=", ".join(names), actual=repr(value), remedy=near
        )

    def _unknown_command(
        self, action: argparse._SubParsersAction[Any], name: str, near: str
    ) -> MisuseError:
        """Return the error for an unknown command, with the usage of the nearest."""
        misuse = self.misused(f"unknown command {name!r}", remedy=near)
        nearest = nearest_words(name, action.choices, likeness=0.6)
        if nearest:
            misuse.usage = action.choices[nearest[0]].short_usage()
        return misuse
