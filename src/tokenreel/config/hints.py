"""What a type hint says of a value: whether it fits, in words, and which choice was meant.

Hints are types here, never their spelling: `hints_of` has resolved them. A look at
the class of a value, and of the items of a list, costs a microsecond or two.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from os import PathLike
from typing import Any, Literal

# What a value may be besides an instance of the class itself: numpy's numbers are numbers.
NUMBERS: Mapping[Any, type] = {int: Integral, float: Real}
WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "True or False",
    PathLike: "a path",
    type(None): "None",
}


@functools.cache
def hints_of(declaring: Any) -> dict[str, Any]:
    """Return the type hints of a function, or of a class with its bases.

    A hint that names what is not imported, as a tokenizer of a package that is not installed, is
    Any.
    """
    if isinstance(declaring, type):
        parts = [(kind, vars(sys.modules[kind.__module__])) for kind in declaring.__mro__[::-1]]
    else:
        inner = inspect.unwrap(declaring, stop=lambda outer: hasattr(outer, "__signature__"))
        parts = [(inner, inner.__globals__)]
    hints: dict[str, Any] = {}
    for written_in, names in parts:
        for name, written in inspect.get_annotations(written_in).items():
            alone = type("alone", (), {"__annotations__": {name: written}})
            try:
                hints |= typing.get_type_hints(alone, names)
            except NameError:
                hints[name] = Any
    return hints


def parts_of(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the hint itself if it is not a union."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def choices_of(hint: Any) -> tuple[Any, ...]:
    """Return the values that the Literals of a hint name.

    >>> choices_of(Literal["a", "b"] | None)
    ('a', 'b')
    """
    literals = [part for part in parts_of(hint) if typing.get_origin(part) is Literal]
    return tuple(choice for part in literals for choice in typing.get_args(part))


def fits(hint: Any, value: object) -> bool:
    """Tell whether a value is what a hint says; a bool is no number, a string no list.

    >>> fits(int | None, None), fits(float, 3), fits(int, True), fits(Sequence[str], "ab")
    (True, True, False, False)
    """
    return any(_fits_part(part, value) for part in parts_of(hint))


def _fits_part(part: Any, value: object) -> bool:
    origin, arguments = typing.get_origin(part), typing.get_args(part)
    if part is Any:
        return True
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is Sequence:
        is_list = isinstance(value, (list, tuple))
        return is_list and all(fits(arguments[0], item) for item in typing.cast(Any, value))
    if part in NUMBERS:
        return isinstance(value, NUMBERS[part]) and not isinstance(value, bool)
    try:
        return isinstance(value, origin or part)
    except TypeError:  # a protocol that says nothing at run time
        return True


def in_words(hint: Any) -> str:
    """Return what a hint accepts, in words.

    >>> in_words(Literal["a", "b"] | None), in_words(str | PathLike[str]), in_words(Sequence[int])
    ("'a', 'b' or None", 'a string or a path', 'a list, each a whole number')
    """
    words: list[str] = []
    for part in parts_of(hint):
        if typing.get_origin(part) is Literal:
            words += [repr(choice) for choice in typing.get_args(part)]
        elif typing.get_origin(part) is Sequence:
            words.append(f"a list, each {in_words(typing.get_args(part)[0])}")
        else:
            kind = typing.get_origin(part) or part
            words.append(WORDS.get(kind) or f"a {kind.__name__}")
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def plain_number(value: object) -> object:
    """Return numpy's numbers and fractions as Python's, all else as it is: settings become JSON.

    >>> from fractions import Fraction
    >>> plain_number(Fraction(1, 4)), plain_number("1/4")
    (0.25, '1/4')
    """
    if isinstance(value, (bool, int, float)) or not isinstance(value, Real):
        return value
    try:
        return int(value) if isinstance(value, Integral) else float(value)
    except OverflowError:  # a fraction beyond what floats hold, which no setting takes
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def brief(value: object) -> str:
    """Return 60 characters of what a value looks like, for an error."""
    try:
        return f"{value!r:.60}"
    except Exception:  # a number of a million digits, or a class whose __repr__ fails
        return f"a {type(value).__name__}"


def nearest_words(word: str, known: Iterable[str], *, likeness: float = 0.5) -> list[str]:
    """Return the known words that may be meant: those that begin with it, else the most similar.

    >>> nearest_words("--val", ["--val-frac", "--val-tokens", "--seed"])
    ['--val-frac', '--val-tokens']
    >>> nearest_words("bulid", ["build", "plan"])
    ['build']
    """
    words = list(known)
    begun = [other for other in words if len(word.strip("-")) > 1 and other.startswith(word)]
    return begun[:3] or difflib.get_close_matches(word, words, n=1, cutoff=likeness)


def did_you_mean(
    wrong: object,
    known: Iterable[object],
    *,
    likeness: float = 0.5,
    show: Callable[[str], str] = repr,
) -> str | None:
    """Return the question that names the nearest of what is known; None where nothing is near.

    >>> did_you_mean("pakced", ["windows", "packed"])
    "did you mean 'packed'?"
    """
    if not isinstance(wrong, str):  # a number is no misspelling
        return None
    near = nearest_words(wrong, map(str, known), likeness=likeness)
    return f"did you mean {' or '.join(map(show, near))}?" if near else None
