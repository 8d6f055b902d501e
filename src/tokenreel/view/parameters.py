"""The parameters of a request: numbers within limits, each given once, none unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenreel.config.hints import brief, did_you_mean
from tokenreel.errors import ConfigError

WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
MOST_NUMBER = 2**53  # the largest that JavaScript tells from its neighbours


class Parameters:
    """What a request asks for; every mistake in it is a ConfigError.

    >>> asked = Parameters([("start", "5")], known=("start", "stop"))
    >>> asked.number("start", 0), asked.number("stop", 100)
    (5, 100)
    """

    def __init__(self, given: Iterable[tuple[str, str]], *, known: Iterable[str]) -> None:
        self._values: dict[str, str] = {}
        known = tuple(known)
        for name, value in given:
            if name not in known:
                raise ConfigError(
                    f"unknown parameter {brief(name)}",
                    expected=", ".join(known) or "none",
                    remedy=did_you_mean(name, known) if known else None,
                )
            if name in self._values:
                raise ConfigError(f"parameter {name} is given twice")
            self._values[name] = value

    def number(self, name: str, default: int, *, least: int = 0, most: int = MOST_NUMBER) -> int:
        """Return a whole number from `least` to `most`; the default where it is not given."""
        if name not in self._values:
            return default
        return whole_number(self._values[name], name, least=least, most=most)

    def text(self, name: str, default: str, *, most: int) -> str:
        """Return a text of at most so many characters."""
        value = self._values.get(name, default)
        if len(value) > most:
            raise ConfigError(f"{name} is too long", expected=f"<= {most:,}", actual=len(value))
        return value


def whole_number(text: str, name: str, *, least: int = 0, most: int = MOST_NUMBER) -> int:
    """Return the whole number that a text spells, within limits; ConfigError for any other."""
    if not WHOLE_NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ConfigError(
            f"bad {name}", expected=f"a whole number, {least:,} to {most:,}", actual=brief(text)
        )
    return int(text)
