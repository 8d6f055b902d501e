"""Jinja as chat templates know it, from a stranger: sandboxed, and bounded in time and size.

The globals, filters and tags are those that transformers gives: `raise_exception`,
`strftime_now`, `dict`, `namespace`, a `tojson` without HTML escapes, loop controls and
`{% generation %}`. Two things of Jinja are missing because the same chat would render to
something else each time: `lipsum` and the filter `random`.

What it may use is counted by jinja_budget.py: loops, calls, filters and tests that filters call
are steps; whatever makes text or lists is asked for the length first, or, where the length is
not known before, for no more than a few times what it was given.

A template may do to its own control tokens what their shadows do not stand for: `upper`, `%r`,
`startswith('<')`. `touched` tells that it did, and the chat is then rendered without shadows too
(jinja_script.py). Methods of numbers and bytes are none of a template's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from itertools import islice
from types import BuiltinMethodType, MethodType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.runtime
import jinja2.sandbox
from jinja2.runtime import LoopContext

from tokenreel.text.chats.jinja_budget import (
    MAX_WIDTH,
    Budget,
    Unbounded,
    check_format,
    check_indent,
    check_product,
    check_replace,
    check_width,
    is_escaped,
)
from tokenreel.text.chats.jinja_globals import Dict, Generation, Namespace, Refused, of_numbers
from tokenreel.text.chats.jinja_prefixes import Followed, Watch
from tokenreel.text.chats.jinja_shadows import Shadows, Untracked, traced

_SEARCHES = {"startswith", "endswith", "find", "rfind", "index", "rindex", "count"}
_SEARCHES |= {"split", "rsplit", "replace", "partition", "rpartition"}
_SEARCHES |= {"removeprefix", "removesuffix"}
_PADS = {"center", "ljust", "rjust", "zfill", "expandtabs"}
# These leave behind what else there is of what they look for.
_TAKES_ONE = {"partition", "rpartition", "removeprefix", "removesuffix"}
_STRIPS = {"strip", "lstrip", "rstrip"}

# Filters that look at no item of what they are given, or hand each item on as it is.
_SHALLOW = {"attr", "batch", "count", "d", "default", "first", "items", "last", "length", "list"}
_SHALLOW |= {"map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice"}
# Of these, those that take a text into its characters.
_TAKE_APART = {"batch", "first", "last", "list", "map", "reject", "reverse", "select", "slice"}
# Filters that go through what they are given, so that an iterator is as good as a list.
_ITERATE = {"groupby", "join", "max", "min", "sort", "sum", "unique"}
# Filters that leave a control token in a text as it is.
_FAITHFUL = {"indent", "safe", "string", "trim"}
# Filters that take the square of the time, and that no model's template has for long texts.
_SLOW = {"pprint", "striptags", "sum", "urlize", "wordwrap"}
_CHECKS: Mapping[str, Callable[..., None]] = {
    **dict.fromkeys(("center", "wordwrap", "batch", "slice", "round"), check_width),
    "indent": check_indent,
}
_OF_CONTEXT = {"_loop_vars", "_block_vars"}  # what Jinja adds for calls that take a context
_UNESCAPES = {"striptags", "unescape"}
MAX_WORDS = 300  # characters of what a template says


_OF_DICTS = frozenset(dir(dict))
_HARMLESS: Mapping[type, frozenset[str]] = {
    str: frozenset(name for name in dir(str) if name[0] != "_" and not name.startswith("format")),
    LoopContext: frozenset(["index", "index0", "first", "last", "length"]),
}
_MISSING = object()


class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The environment of one template; it renders one chat at a time."""

    intercepted_binops = frozenset(["+", "-", "*", "**", "%"])

    def __init__(self, shadows: Shadows, *, today: date) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, jinja2.ext.loopcontrols],
            finalize=self._printed,
            optimized=False,  # nothing of a template is computed before it is rendered
        )
        self.shadows = shadows
        self.budget = Budget()
        self.watch = Watch()
        self.touched = False
        self.globals.pop("lipsum")
        self.globals |= {
            "raise_exception": self._raise_exception,
            "strftime_now": datetime(today.year, today.month, today.day).strftime,
            "dict": Dict(),
            "namespace": Namespace,
        }
        for name in ("odd", "even", "divisibleby"):
            self.tests[name] = of_numbers(self.tests[name])
        self.filters.pop("random")
        self.filters |= {"tojson": self._to_json, "replace": self._replace}
        self.filters = {name: self._counted(name, run) for name, run in self.filters.items()}
        self.filters |= {
            "_compared": self.compared,
            "_cut": self._cut,
            "_joined": self.joined,
            "_kept": self.budget.keep,
            "_tested": self._tested,
            "_within": self.within,
        }

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call what a template calls: a step of its budget."""
        __self.budget.step()
        owner = getattr(__obj, "__self__", None)
        if isinstance(__obj, (BuiltinMethodType, MethodType)) and isinstance(owner, str):
            kwargs = {name: value for name, value in kwargs.items() if name not in _OF_CONTEXT}
            return __self.budget.keep(__self._call_text(__obj, args, kwargs))
        if __obj is Namespace:
            __self._weigh(*args)
        elif not isinstance(__obj, jinja2.runtime.Macro):
            given = [value for name, value in kwargs.items() if name not in _OF_CONTEXT]
            __self._weigh(*args, *given)
            if isinstance(owner, (list, tuple)):
                __self._weigh(owner)
        return __self.budget.keep(super().call(__context, __obj, *args, **kwargs))

    def call_test(self, name: str, value: Any, args: Any = None, *rest: Any, **more: Any) -> Any:
        """Run a test for a filter such as `select`: a step, and a comparison of its arguments."""
        self.budget.step()
        value, args = self.within(value), [self.within(arg) for arg in args or ()]
        return super().call_test(name, value, args, *rest, **more)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Tell whether a template may have an attribute: of numbers and bytes, none."""
        if isinstance(obj, (int, float, bytes)) or (is_escaped(obj) and attr in _UNESCAPES):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute as the sandbox does, at once for what is harmless and common."""
        kind = type(obj)
        if kind is dict:
            if attribute not in _OF_DICTS:  # so it is a key, or nothing
                if attribute in obj:
                    return obj[attribute]
                return self.undefined(obj=obj, name=attribute)
        elif kind is LoopContext:
            self.watch.see_loop(obj, attribute)
        if attribute in _HARMLESS.get(kind, ()):
            return getattr(obj, attribute)
        if kind is Namespace and not attribute.startswith("_"):
            value = getattr(obj, attribute, _MISSING)
            return self.undefined(obj=obj, name=attribute) if value is _MISSING else value
        return super().getattr(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute + - * ** %, unless the result would be too large."""
        if operator == "+":
            result = left + right
            if type(result) is str:
                self.budget.made(len(result))
                return result
            if is_escaped(result):
                self._refuse_escaped(left, right)
            return self.budget.keep(result)
        if operator == "%" and isinstance(left, str):
            self.see(left)
            check_format(self.budget, left, self._weigh(right))
        elif operator in "**":
            check_product(self.budget, operator, left, right)
        return self.budget.keep(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Any:
        """Return a sandboxed str.format, or None for anything else."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def run(*args: Any, **kwargs: Any) -> str:
            self.see(value.__self__)
            sizes = [self._weigh(arg) for arg in (*args, *kwargs.values())]
            check_format(self.budget, value.__self__, max(sizes, default=0))
            return wrapped(*args, **kwargs)

        return run

    def spelled(self, value: Any) -> Any:
        """Return a value as comparisons see it: control tokens of literals as they are spelled."""
        if isinstance(value, str):
            return value if value.isascii() else self.shadows.spelled(value)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
            return type(value)([self.spelled(item) for item in value])
        return value

    def compared(self, value: Any) -> Any:
        """Return a value as comparisons see it; what is no single value is measured first."""
        if isinstance(value, str):
            return value if value.isascii() else self.shadows.spelled(value)
        if isinstance(value, (list, tuple, dict)):
            self._weigh(value)
        return self.spelled(value)

    def within(self, value: Any) -> Any:
        """Return what something is looked for in: the keys of a dict need no measure."""
        return value if isinstance(value, dict) else self.compared(value)

    def joined(self, parts: Iterable[Any]) -> str:
        """Return what `~` makes of its parts."""
        for part in parts:
            if not isinstance(part, str):
                self._weigh(part)
        text = "".join(map(str, parts))
        self.budget.made(len(text))
        return text

    @jinja2.pass_context
    def _printed(self, _: Any, value: Any) -> Any:
        """Return a value that is written out, which is plain data."""
        if isinstance(value, str):
            self.budget.made(len(value))
        else:
            self._weigh(value)
        return value

    def _cut(self, value: Any) -> Any:
        """Return a slice: the fillers of two control tokens are alike, so their ends may swap."""
        if type(value) is str:
            self.see(value)
        elif type(value) is Followed:  # `len` would be a look at all messages
            self.budget.made(list.__len__(value))
            return value
        return self.budget.keep(value)

    def _tested(self, value: Any) -> Any:
        """Return the condition of an item of a loop: a step, also for what it leaves out."""
        self.budget.step()
        return value

    def see(self, text: str) -> None:
        """Note whether a text has a shadow, where more is done to it than shadows can follow."""
        if not text.isascii() and self.shadows.has_any(text):
            self.touched = True

    def _weigh(self, *values: Any) -> int:
        """Return the size of values that are written, compared or hashed; shadows are noted."""
        return sum(self.budget.size(value, self.see) for value in values)

    def _counted(self, name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter that is a step and asks for sizes; its flags for Jinja are kept."""
        mark = getattr(compute, "jinja_pass_arg", None)
        first, check = int(mark is not None), _CHECKS.get(name)
        is_shallow, may_be_new = name in _SHALLOW, name not in _SHALLOW | _FAITHFUL

        def run(*args: Any, **kwargs: Any) -> Any:
            self.budget.step()
            had_shadows, self.touched = self.touched, False
            plain = [*args[first:], *kwargs.values()]
            if is_shallow:
                if name in _TAKE_APART and isinstance(plain[0], str):
                    self.see(plain[0])
            else:
                if name in _ITERATE:
                    plain = [self._whole(value) for value in plain]
                self._measure(name, plain)
                num_positional = len(args) - first
                kwargs = dict(zip(kwargs, plain[num_positional:], strict=True))
                args = (*args[:first], *plain[:num_positional])
            if check is not None:
                check(self.budget, *plain)
            result = self.budget.keep(compute(*args, **kwargs))
            if may_be_new and not self.touched:
                self._refuse_new(name, result)
            self.touched |= had_shadows
            return result

        if mark is not None:
            run.jinja_pass_arg = mark  # type: ignore[attr-defined]
        return run

    def _whole(self, value: Any) -> Any:
        """Return an iterator's items as a list; all else as it is."""
        if isinstance(value, Iterator) and not isinstance(value, LoopContext):
            return list(islice(value, self.budget.max_characters + 1))
        return value

    def _measure(self, name: str, values: list[Any]) -> None:
        """Ask for the sizes of what a filter is given."""
        is_faithful = name in _FAITHFUL and len(values) == 1
        sizes = [
            self.budget.size(value, self.see)
            if not (is_faithful and isinstance(value, str))
            else len(value)
            for value in values
        ]
        if name == "join" and hasattr(values[0], "__len__"):
            self.budget.text(sizes[0] + len(values[0]) * sum(sizes[1:]))
        elif name == "format":
            check_format(self.budget, values[0], max(sizes[1:], default=0))
        elif name in _SLOW:
            texts = [len(value) for value in values[1:] if isinstance(value, str)]
            if sizes[0] > MAX_WIDTH or sizes[0] * max([1, *texts]) > self.budget.max_characters:
                raise Unbounded(f"it uses the filter {name} on more than {MAX_WIDTH:,} characters")

    def _refuse_new(self, name: str, result: Any) -> None:
        """Refuse shadows that come of text without any, such as `&#x100000;`."""
        if isinstance(result, str) and not result.isascii() and self.shadows.has_any(result):
            raise Untracked(f"the filter {name} makes private-use characters")

    def _call_text(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text, name = method.__self__, method.__name__
        if name == "translate" or kwargs.keys() & {"tabsize", "width"}:
            raise Unbounded(f"it calls {name} on text, of which no bound is known")
        if args or name not in _STRIPS:
            self.see(text)
        if name in _PADS:
            check_width(self.budget, text, *args)
        if name == "join":
            args = (self._whole(args[0]),) if args else ()
            self._measure(name, [*args, text] if args else [[], text])
        elif name == "expandtabs":
            self.budget.text(text.count("\t") * MAX_WIDTH)
        elif name in _SEARCHES:
            text, args = self._searched(name, text, args, kwargs)
            if name == "replace":
                check_replace(self.budget, text, *args[:2])
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
        check_replace(self.budget, text, old, new)
        return text.replace(old, new, *rest)

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
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def _raise_exception(self, message: object) -> None:
        self._weigh(message)
        raise Refused(str(self.spelled(message))[:MAX_WORDS])

    def _refuse_escaped(self, *parts: object) -> None:
        for part in parts:
            if isinstance(part, str) and self.shadows.has_any(part):
                raise Untracked("the template escapes control tokens of its own")
