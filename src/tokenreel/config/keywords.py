"""Check the keywords of a call against the signature: each name known, each value of its type.

The signature stays the one list of what a function takes: its hints are read by type
checkers, by editors, by the command line, and here. Costs a microsecond for each keyword.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar

from tokenreel.errors import ConfigError, KeywordError

P = ParamSpec("P")
R = TypeVar("R")
# What a value may be besides an instance of the class itself: numpy's numbers are numbers.
NUMBERS: dict[Any, type] = {int: numbers.Integral, float: numbers.Real}
WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "True or False"}


def check_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check in front: a wrong keyword or value is a ConfigError.

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
                raise _unknown(function.__name__, name, known)
            if name in hints and not _fits(hints[name], value):
                raise _misfit(name, hints[name], value)
            kwargs[name] = _plain(value)
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


def choices_of(hint: Any) -> list[Any]:
    """Return the values that the Literals of a hint name.

    >>> choices_of(Literal["a", "b"] | None)
    ['a', 'b']
    """
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    return [choice for part in _parts(hint) for choice in choices_of(part)]


def _parts(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else ()


def _fits(hint: Any, value: object) -> bool:
    """Tell whether a value is what a hint says, as far as a look at its class can tell."""
    if parts := _parts(hint):
        return any(_fits(part, value) for part in parts)
    if typing.get_origin(hint) is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if hint is Any:
        return True
    if hint in NUMBERS and isinstance(value, bool):
        return False
    try:
        return isinstance(value, NUMBERS.get(hint, typing.get_origin(hint) or hint))
    except TypeError:  # a protocol that says nothing at run time
        return True


def _plain(value: object) -> object:
    """Return numpy's numbers as Python's: what is recorded of a setting is JSON."""
    if isinstance(value, (bool, int, float)) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _unknown(function: str, name: str, known: list[str]) -> KeywordError:
    near = difflib.get_close_matches(name, known, n=1)
    return KeywordError(
        f"{function}() has no keyword {name!r}",
        remedy=f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}",
    )


def _misfit(name: str, hint: Any, value: object) -> ConfigError:
    choices = choices_of(hint)
    kinds = [part for part in _parts(hint) or (hint,) if typing.get_origin(part) is not Literal]
    words = [repr(choice) for choice in choices] + [_word(kind) for kind in kinds]
    near = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1)
    return ConfigError(
        f"bad {name}",
        expected=" or ".join(words),
        actual=repr(value),
        remedy=f"did you mean {near[0]!r}?" if near else None,
    )


def _word(kind: Any) -> str:
    if kind is type(None):
        return "None"
    return WORDS.get(kind) or f"a {getattr(typing.get_origin(kind) or kind, '__name__', kind)}"
