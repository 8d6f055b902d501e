"""Check the keywords of a call against the signature: each name known, each value of its type.

The signature stays the one list of what a function takes: its hints are read by type
checkers, by editors, by the command line, and here. Costs a microsecond for each keyword.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from tokenreel.config.hints import brief, choices_of, did_you_mean, fits, in_words, plain_number
from tokenreel.errors import ConfigError, KeywordError

P = ParamSpec("P")
R = TypeVar("R")


def check_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check in front: a wrong keyword or value is a ConfigError.

    >>> from typing import Literal
    >>> @check_keywords
    ... def paint(*, colour: Literal["red", "blue"] = "red", coats: int = 1) -> str:
    ...     return colour * coats
    >>> paint(coats=2)
    'redred'
    >>> paint(color="blue")
    Traceback (most recent call last):
    tokenreel.errors.KeywordError: paint() has no keyword 'color'; did you mean 'colour'?
    """
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        hints = hints_of(function)
        for name, value in kwargs.items():
            if name not in known:
                remedy = did_you_mean(name, known) or f"it has {', '.join(known)}"
                raise KeywordError(f"{function.__name__}() has no keyword {name!r}", remedy=remedy)
            if not fits(hints.get(name, Any), value):
                raise ConfigError(
                    f"bad {name}",
                    expected=in_words(hints[name]),
                    actual=brief(value),
                    remedy=did_you_mean(value, choices_of(hints[name])),
                )
            kwargs[name] = plain_number(value)
        return function(*args, **kwargs)

    return checked


@functools.cache
def hints_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return the type hints of a function; Any for those that name what is not imported."""
    inner = inspect.unwrap(function)
    hints: dict[str, Any] = {}
    for name, written in inner.__annotations__.items():
        alone = types.SimpleNamespace(__annotations__={name: written})
        try:
            hints |= typing.get_type_hints(alone, inner.__globals__)
        except NameError:
            hints[name] = Any
    return hints
