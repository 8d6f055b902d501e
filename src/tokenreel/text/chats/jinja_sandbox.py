"""Jinja as chat templates know it, from a stranger: sandboxed, and bounded in time and size.

The globals, filters and tags are those that transformers gives: `raise_exception`,
`strftime_now`, `dict`, `namespace`, a `tojson` without HTML escapes, loop controls and
`{% generation %}`. Two things of Jinja are missing because the same chat would render to
something else each time: `lipsum` and the filter `random`.

What bounds a rendering, since a thread that renders cannot be ended from outside:
- every turn of a loop and every call is a step, and steps are counted (MAX_STEPS) and timed
  (MAX_SECONDS), about 0.1 microseconds each; recursion ends at Python's limit;
- whatever makes text or a list longer than its parts is asked for the length first: `+`, `~`,
  `*`, `%`, `join`, `replace`, padding, `format`; `**` and `*` for the bits of their result;
- the output is taken piece by piece and given up at `max_characters`;
- `range` has Jinja's own limit of 100,000.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from types import BuiltinMethodType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.runtime
import jinja2.sandbox
from jinja2 import nodes

from tokenreel.text.chats.jinja_shadows import (
    GENERATION_START,
    GENERATION_STOP,
    Shadows,
    Untracked,
    traced,
)

MAX_STEPS = 1_000_000
MAX_SECONDS = 20.0
MAX_ITEMS = 1_000_000
MAX_BITS = 4096
MAX_WIDTH = 10_000
MIN_CHARACTERS = 4_000_000

_WIDE = re.compile(r"\d{5,}|\*|\{[^{}]*\{")
_SEARCHES = {"startswith", "endswith", "find", "rfind", "index", "rindex", "count"}
_SEARCHES |= {"split", "rsplit", "replace", "partition", "rpartition"}
_SEARCHES |= {"removeprefix", "removesuffix"}
_PADS = {"center", "ljust", "rjust", "zfill", "expandtabs"}
# These leave behind what else there is of what they look for.
_TAKES_ONE = {"partition", "rpartition", "removeprefix", "removesuffix"}


_OF_DICTS = frozenset(dir(dict))
_HARMLESS: Mapping[type, frozenset[str]] = {
    str: frozenset(name for name in dir(str) if name[0] != "_" and not name.startswith("format")),
    jinja2.runtime.LoopContext: frozenset(["index", "index0", "first", "last", "length"]),
}
_MISSING = object()


class Unbounded(Exception):
    """A template takes more time or memory than any chat is worth."""


class Refused(jinja2.TemplateError):
    """What a template says with raise_exception."""


class Budget:
    """What one rendering may still use, and where it is in its output."""

    def __init__(self) -> None:
        self.renew(MIN_CHARACTERS)

    def renew(self, max_characters: int) -> None:
        """Begin a rendering."""
        self.max_characters = max_characters
        self._steps = MAX_STEPS
        self._deadline = time.monotonic() + MAX_SECONDS

    def step(self) -> None:
        """Count a turn of a loop or a call."""
        self._steps -= 1
        if self._steps < 0 or (not self._steps & 63 and time.monotonic() > self._deadline):
            raise Unbounded(
                f"it takes more than {MAX_STEPS:,} steps or {MAX_SECONDS:g} seconds for one chat"
            )

    def text(self, num_characters: int) -> None:
        """Refuse a text of this many characters if that is too long."""
        if num_characters > self.max_characters:
            raise Unbounded(f"it makes a text of more than {self.max_characters:,} characters")


class Generation(jinja2.ext.Extension):
    """The tag {% generation %}: marks around what an assistant says, invisible in the ids."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        """Return the body between two marks, in a scope of its own as in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        marks = [
            nodes.Output([nodes.TemplateData(mark)]).set_lineno(line)
            for mark in (GENERATION_START, GENERATION_STOP)
        ]
        return [marks[0], nodes.Scope(body).set_lineno(line), marks[1]]


class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The environment of one template; it renders one chat at a time."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, shadows: Shadows, *, today: date) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, jinja2.ext.loopcontrols],
        )
        self.shadows = shadows
        self.budget = Budget()
        self.globals.pop("lipsum")
        self.globals |= {
            "raise_exception": self._raise_exception,
            "strftime_now": datetime(today.year, today.month, today.day).strftime,
            "dict": _Dict(),
            "namespace": _Namespace,
        }
        self.filters.pop("random")
        self.filters["tojson"] = self._to_json
        self.filters["join"] = _counted(self.budget, self.filters["join"], self._check_join)
        self.filters["replace"] = _counted(self.budget, self._replace, None)
        for name in ("center", "indent", "wordwrap", "batch", "slice"):
            self.filters[name] = _counted(self.budget, self.filters[name], _check_width)
        self.filters["format"] = _counted(self.budget, self.filters["format"], _check_format)
        self.filters |= {"_spelled": self.spelled, "_joined": self.joined}

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call what a template calls: a step of its budget."""
        __self.budget.step()
        if type(__obj) is BuiltinMethodType and isinstance(__obj.__self__, str):
            # What Jinja adds for calls that take a context.
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return __self._call_text(__obj, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute as the sandbox does, at once for what is harmless and common."""
        kind = type(obj)
        if kind is dict:
            if attribute not in _OF_DICTS:  # so it is a key, or nothing
                if attribute in obj:
                    return obj[attribute]
                return self.undefined(obj=obj, name=attribute)
        elif attribute in _HARMLESS.get(kind, ()):
            return getattr(obj, attribute)
        elif kind is _Namespace and not attribute.startswith("_"):
            value = getattr(obj, attribute, _MISSING)
            return self.undefined(obj=obj, name=attribute) if value is _MISSING else value
        return super().getattr(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute + * ** %, unless the result would be too large."""
        if operator == "+":
            result = left + right
            if isinstance(result, str):
                if len(result) > self.budget.max_characters:
                    self.budget.text(len(result))
                if isinstance(result, jinja2.utils.markupsafe.Markup):
                    self._refuse_escaped(left, right)
            elif isinstance(result, (list, tuple)) and len(result) > MAX_ITEMS:
                raise Unbounded(f"it makes a list of more than {MAX_ITEMS:,} items")
            return result
        _check_product(self.budget, operator, left, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        """Return a sandboxed str.format, or None for anything else."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _check_format(self.budget, value.__self__)
        return wrapped

    def spelled(self, value: Any) -> Any:
        """Return a value as comparisons see it: control tokens of literals as they are spelled."""
        if isinstance(value, str):
            return value if value.isascii() else self.shadows.spelled(value)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
            return [self.spelled(item) for item in value]
        return value

    def joined(self, parts: Iterable[Any]) -> str:
        """Return what `~` makes of its parts."""
        text = "".join(map(str, parts))
        self.budget.text(len(text))
        return text

    def _call_text(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text, name = method.__self__, method.__name__
        if name == "translate" or kwargs.keys() & {"tabsize", "width"}:
            raise Unbounded(f"it calls {name} on text, of which no bound is known")
        if name in _PADS:
            _check_width(self.budget, text, *args)
        if name == "join":
            args = (list(args[0]),) if args else ()
            self._check_join(self.budget, *args, text)
        elif name == "expandtabs":
            self.budget.text(text.count("\t") * MAX_WIDTH)
        elif name in _SEARCHES:
            text, args = self._searched(name, text, args, kwargs)
            if name == "replace":
                _check_replace(self.budget, text, *args[:2])
            method = getattr(text, name)
        return method(*args, **kwargs)

    def _searched(
        self, name: str, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, tuple[Any, ...]]:
        """Return text and arguments so that a spelling is found wherever a literal wrote it."""
        if not args or all(isinstance(arg, str) and arg.isascii() for arg in (text, *args)):
            return text, args
        wanted = self.spelled(args[0])
        if isinstance(wanted, list):
            wanted = tuple(wanted)
        sought = [wanted] if isinstance(wanted, str) else wanted or ()
        if self.shadows.has_any(text):
            in_part = name in _TAKES_ONE or kwargs or len(args) > 1 + (name == "replace")
            forms = [(s, form(s)) for s in sought for form in (self.shadows.shadow, traced)]
            for spelling, shadow in forms:
                if shadow != spelling and shadow in text:
                    if in_part:
                        raise Untracked(f"the template calls {name} on its own control tokens")
                    text = text.replace(shadow, spelling)
        return text, (wanted, *args[1:])

    def _replace(self, text: Any, old: Any, new: Any, count: int | None = None) -> str:
        counts = () if count is None else (count,)
        text, (old, new, *rest) = self._searched(
            "replace", str(text), (str(old), str(new), *counts), {}
        )
        _check_replace(self.budget, text, old, new)
        return text.replace(old, new, *rest)

    def _check_join(self, budget: Budget, values: Any, separator: Any = "", *_: Any) -> None:
        if isinstance(values, (list, tuple, str, dict)):
            budget.text(len(values) * len(str(separator)))
            if isinstance(values, (list, tuple)):
                budget.text(sum(len(value) for value in values if isinstance(value, str)))

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        width = len(indent) if isinstance(indent, str) else indent or 0
        if width > 64:
            raise Unbounded("it indents JSON by more than 64 characters")
        text = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        self.budget.text(len(text))
        return text

    def _raise_exception(self, message: object) -> None:
        raise Refused(str(self.spelled(message)))

    def _refuse_escaped(self, *parts: object) -> None:
        for part in parts:
            if isinstance(part, str) and self.shadows.has_any(part):
                raise Untracked("the template escapes control tokens of its own")


class _Dict:
    """`dict` in a template: the constructor, without the attributes of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class _Namespace(jinja2.utils.Namespace):
    """`namespace` in a template, which takes no name with an underscore in front."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, given = args[0], dict(*args[1:], **kwargs)
        for name in given:
            _refuse_private(name)
        jinja2.utils.Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no name such as {name!r}")


def _counted(
    budget: Budget, compute: Callable[..., Any], check: Callable[..., None] | None
) -> Callable[..., Any]:
    """Return a filter that is a step and checks its arguments; its flags for Jinja are kept."""

    def run(*args: Any, **kwargs: Any) -> Any:
        budget.step()
        if check is not None:
            plain = args[1:] if takes_more else args
            check(budget, *plain, *kwargs.values())
        return compute(*args, **kwargs)

    mark = getattr(compute, "jinja_pass_arg", None)
    takes_more = mark is not None
    if takes_more:
        run.jinja_pass_arg = mark  # type: ignore[attr-defined]
    return run


def _check_width(budget: Budget, _: Any, *sizes: Any) -> None:
    for size in sizes:
        if isinstance(size, int) and size > MAX_WIDTH:
            raise Unbounded(f"it asks for {size:,} characters or items at once")


def _check_format(budget: Budget, template: Any, *_: Any) -> None:
    if isinstance(template, str) and _WIDE.search(template):
        raise Unbounded("it formats text to a width that is too large, or not stated")


def _check_replace(budget: Budget, text: str, old: Any, new: Any = "") -> None:
    if isinstance(old, str) and isinstance(new, str) and len(new) > len(old):
        budget.text(len(text) + text.count(old) * (len(new) - len(old)))


def _check_product(budget: Budget, sign: str, left: Any, right: Any) -> None:
    if sign == "%":
        return _check_format(budget, left)
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if (bits + right.bit_length() if sign == "*" else bits * abs(right)) > MAX_BITS:
            raise Unbounded("it computes a number that is too large")
        return None
    for value, times in ((left, right), (right, left)):
        if sign == "*" and isinstance(times, int) and hasattr(value, "__len__"):
            limit = budget.max_characters if isinstance(value, str) else MAX_ITEMS
            if len(value) * max(0, times) > limit:
                raise Unbounded(f"it repeats something to more than {limit:,} characters or items")
    return None
