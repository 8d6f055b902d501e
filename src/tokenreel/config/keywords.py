"""Check the keywords of a call: each name known, each value of its type.

    check_keywords    a function with a signature, which is the one list of what it takes
    takes_settings    a function of declared settings (settings.py), which become its keywords

A check costs a microsecond for each keyword.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, ParamSpec, TypeVar

from tokenreel.config.hints import (
    brief,
    choices_of,
    did_you_mean,
    fits,
    hints_of,
    in_words,
    plain_number,
)
from tokenreel.config.settings import grouped
from tokenreel.errors import ConfigError, KeywordError

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


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
                raise _unknown(function, name, known)
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


def takes_settings(kind: Callable[P, S]) -> Callable[[Callable[[S], R]], Callable[P, R]]:
    """Let a function of one object, its settings, be called with them as keywords.

    To callers, help() and type checkers it has a keyword for each field of the class, which
    checks the values; what the fields mean is appended to the docstring.
    """
    items = fields(kind)  # type: ignore[arg-type]
    known = [item.name for item in items]
    required = [item.name for item in items if item.default is MISSING]

    def decorate(function: Callable[[S], R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in known:
                    raise _unknown(function, name, known)
            missing = [name for name in required if name not in kwargs]
            if missing:
                raise KeywordError(f"{function.__name__}() needs {' and '.join(missing)}")
            return function(kind(*args, **kwargs))

        hints = hints_of(kind) | {"return": function.__annotations__["return"]}
        called.__annotations__ = hints
        called.__signature__ = inspect.signature(kind).replace(  # type: ignore[attr-defined]
            return_annotation=hints["return"]
        )
        called.__doc__ = f"{inspect.getdoc(function)}\n\n{grouped(kind)}\n"
        return called

    return decorate


def _unknown(function: Callable[..., object], name: str, known: list[str]) -> KeywordError:
    remedy = did_you_mean(name, known) or f"it has {', '.join(known)}"
    return KeywordError(f"{function.__name__}() has no keyword {name!r}", remedy=remedy)
