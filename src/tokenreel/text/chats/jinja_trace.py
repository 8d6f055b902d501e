"""A template run once for many chats: what it writes as constants and as texts of the messages.

Most of a rendering is the same for every chat of one kind (jinja_masks.py), so one chat is
rendered with opaque objects in place of its texts and numbers. They keep a record of what the
template does with them:

    written out, joined, stripped, split, made JSON       a slot of the skeleton
    asked whether they are empty, begin with, equal, …    a guard: the answer that was given
    anything else                                          Untraceable: no skeleton

Another chat that gives every guard the same answer is written by the skeleton as the template
would write it, at about a tenth of the cost. An opaque object is no `str`: what is not listed
here cannot be done with it by accident, since all of Python's other operations raise.
Untraceable is no Exception, so that nothing on the way takes it for a failed conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Any, NoReturn

from tokenreel.text.chats.jinja_sandbox import Sandbox
from tokenreel.text.chats.jinja_shadows import Shadows, has_ours

Messages = Sequence[Mapping[str, Any]]
MAX_GUARDS = 1000
MAX_NUMBER = 2**63  # a larger one is as long as a text
_JSON_GROWTH = 12  # characters that JSON makes of one at most: two escapes \uXXXX
_NUMBER_GROWTH = 32  # characters of a number, in a chat that has one at least

_STRIPS = frozenset(["strip", "lstrip", "rstrip"])
_ASKS = frozenset(["startswith", "endswith"])
_SPLITS = frozenset(["split", "rsplit"])
_METHODS = _STRIPS | _ASKS | _SPLITS
_OF_TEXT = {"string": True, "iterable": True, "sequence": True, "defined": True} | dict.fromkeys(
    ("undefined", "none", "mapping", "number", "integer", "float", "boolean", "true", "false"),
    False,
)
_OF_NUMBER = {"defined": True} | dict.fromkeys(
    ("undefined", "none", "mapping", "string", "boolean"), False
)
# These ask by `==`, which an opaque object answers.
_COMPARING = frozenset(["eq", "equalto", "==", "ne", "!=", "in"])
# These hand their argument on, or ask only whether it is empty.
_HARMLESS = frozenset(["default", "d", "_step", "_spelled"])


class Untraceable(BaseException):
    """A template does something with a text that no skeleton tells."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A text of a chat, or what a template makes of it; `growth` bounds its length.

    It has at most `growth` characters for each character of the chat.
    """

    get: Callable[[Messages], str]
    growth: int = 1


@dataclass(slots=True)
class Trace:
    """What one rendering did with the texts of a chat."""

    messages: Messages
    guards: list[tuple[Callable[[Messages], Any], Any]] = field(default_factory=list)
    growth: int = 0
    num_constant: int = 0

    def ask(self, question: Callable[[Messages], Any]) -> Any:
        """Return the answer of the chat at hand, which becomes a guard."""
        answer = question(self.messages)
        self.guards.append((question, answer))
        if len(self.guards) > MAX_GUARDS:
            raise Untraceable
        return answer

    def join(self, parts: Iterable[Any]) -> Any:
        """Return texts and constants as one."""
        flat: list[Any] = []
        for part in parts:
            flat += part.parts if isinstance(part, Text) else [self.text_of(part)]
        if not any(isinstance(part, Slot) for part in flat):
            return "".join(flat)
        self.growth = max(self.growth, sum(p.growth for p in flat if isinstance(p, Slot)))
        constants = sum(len(part) for part in flat if isinstance(part, str))
        self.num_constant = max(self.num_constant, constants)
        return Text(self, tuple(flat))

    def text_of(self, value: Any) -> Any:
        """Return what `str` does, in place of which a traced template calls it."""
        if isinstance(value, Text):
            return value
        if isinstance(value, Number):
            return Text(self, (Slot(lambda messages: str(value.get(messages)), _NUMBER_GROWTH),))
        return str(value)

    def opened(self, messages: Messages) -> list[dict[str, Any]]:
        """Return messages with opaque objects for their texts and numbers, but for roles."""
        return [
            {
                key: item if key == "role" else self._opaque(item, (index, key))
                for key, item in message.items()
            }
            for index, message in enumerate(messages)
        ]

    def _opaque(self, value: Any, path: tuple[Any, ...]) -> Any:
        if type(value) is str:
            return Text(self, (Slot(partial(_at, path) if len(path) > 2 else _field(*path)),))
        if is_number(value):
            return Number(self, partial(_at, path))
        if type(value) is dict:
            return {key: self._opaque(item, (*path, key)) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._opaque(item, (*path, n)) for n, item in enumerate(value))
        return value


def is_number(value: Any) -> bool:
    """Tell whether a value is a number whose digits a skeleton leaves open."""
    return type(value) in (int, float) and abs(value) < MAX_NUMBER


def _field(index: int, key: str) -> Callable[[Messages], str]:
    def get(messages: Messages) -> str:
        found: str = messages[index][key]
        return found

    return get


def _at(path: tuple[Any, ...], messages: Messages) -> Any:
    found: Any = messages
    for step in path:
        found = found[step]
    return found


def _raise_untraceable(*_: Any, **__: Any) -> NoReturn:
    raise Untraceable


_refuse: Any = _raise_untraceable


class Opaque:
    """A value of a chat of which a template knows nothing until it asks."""

    __slots__ = ("trace",)

    __hash__ = __len__ = __iter__ = __getitem__ = __contains__ = __reversed__ = _refuse
    __str__ = __repr__ = __format__ = __bytes__ = __call__ = _refuse
    __int__ = __float__ = __index__ = __complex__ = __round__ = __abs__ = __neg__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __sub__ = __rsub__ = _refuse

    def __getattr__(self, name: str) -> Any:
        raise Untraceable


class Number(Opaque):
    """A number: it may be written, and asked whether it is zero."""

    __slots__ = ("get",)

    def __init__(self, trace: Trace, get: Callable[[Messages], Any]) -> None:
        self.trace = trace
        self.get = get

    def __bool__(self) -> bool:
        get = self.get
        return bool(self.trace.ask(lambda messages: bool(get(messages))))


class Text(Opaque):
    """A text: constants of the template, which may hold shadows, and slots."""

    __slots__ = ("parts",)

    def __init__(self, trace: Trace, parts: tuple[str | Slot, ...]) -> None:
        self.trace = trace
        self.parts = parts

    def __add__(self, other: Any) -> Any:
        return self.trace.join((self, _text(other)))

    def __radd__(self, other: Any) -> Any:
        return self.trace.join((_text(other), self))

    def __bool__(self) -> bool:
        get = self.plain().get
        return bool(self.trace.ask(lambda messages: bool(get(messages))))

    def __contains__(self, sought: Any) -> bool:
        get = self.plain().get
        _plain_texts(sought)
        return bool(self.trace.ask(lambda messages: sought in get(messages)))

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, (str, Opaque)):
            return False
        get = self.plain().get
        _plain_texts(other)
        return self.trace.ask(lambda messages: get(messages) == other)

    def __ne__(self, other: object) -> Any:
        return not self == other

    __hash__ = Opaque.__hash__

    def call(self, name: str, *args: Any) -> Any:
        """Return what a method of the text returns."""
        slot = self.plain()
        _plain_texts(*(args[0] if args and isinstance(args[0], tuple) else args))
        if name in _SPLITS and not args:  # of blanks, nothing is left
            raise Untraceable

        def called(messages: Messages) -> Any:
            return getattr(slot.get(messages), name)(*args)

        if name in _ASKS:
            return self.trace.ask(called)
        if name in _SPLITS:
            return Split(self.trace, called, slot.growth)
        return Text(self.trace, (Slot(called, slot.growth),))

    def plain(self) -> Slot:
        """Return the text as one slot, unless it has control tokens of the template in it."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Slot):
            return self.parts[0]
        parts = self.parts
        if any(isinstance(part, str) and has_ours(part) for part in parts):
            raise Untraceable

        def get(messages: Messages) -> str:
            return "".join([p if isinstance(p, str) else p.get(messages) for p in parts])

        return Slot(get, sum(part.growth for part in parts if isinstance(part, Slot)))


class Split(Opaque):
    """The parts of a split text: the first and the last are always there."""

    __slots__ = ("get", "growth")

    def __init__(self, trace: Trace, get: Callable[[Messages], Any], growth: int) -> None:
        self.trace = trace
        self.get = get
        self.growth = growth

    def __getitem__(self, index: Any) -> Any:
        if index not in (0, -1):
            raise Untraceable
        get = self.get
        return Text(self.trace, (Slot(lambda messages: get(messages)[index], self.growth),))


class Tracing(Sandbox):
    """The sandbox, for templates that are run with opaque objects."""

    def __init__(self, shadows: Shadows, *, today: date) -> None:
        super().__init__(shadows, today=today)
        self.trace = Trace([])
        self.template_names = {"str": lambda value: self.trace.text_of(value)}
        self.filters = {
            name: traced_filter(name, compute, lambda: self.trace)
            for name, compute in self.filters.items()
        }
        tests: Mapping[str, Any] = self.tests
        self.tests = {name: traced_test(name, test) for name, test in tests.items()}

    def concat(self, parts: Iterable[Any]) -> Any:
        """Return what a macro or a captured block writes."""
        return self.trace.join(parts)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute; of opaque objects, a method that is known."""
        if not isinstance(obj, Opaque):
            return super().getattr(obj, attribute)
        if isinstance(obj, Text) and attribute in _METHODS:
            return partial(obj.call, attribute)
        raise Untraceable


def _text(value: Any) -> Any:
    if not isinstance(value, (str, Text)):
        raise Untraceable
    return value


def _plain_texts(*values: Any) -> None:
    for value in values:
        if type(value) is not str or not value or has_ours(value):
            raise Untraceable


def traced_filter(name: str, compute: Callable[..., Any], trace: Callable[[], Trace]) -> Any:
    """Return a filter that lets opaque objects through where it is known what it does to them."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if name == "tojson" and _has_opaque(args[0]):
            return _to_json(compute, trace(), *args, **kwargs)
        if name == "_joined" and _has_opaque(args[0]):
            return trace().join(args[0])
        is_known = not any(isinstance(arg, Opaque) for arg in (*args, *kwargs.values()))
        if is_known or name in _HARMLESS:
            return compute(*args, **kwargs)
        if name == "trim" and isinstance(args[0], Text) and not kwargs:
            return args[0].call("strip", *args[1:])
        if name == "string" and isinstance(args[0], Text):
            return args[0]
        raise Untraceable

    _keep_flag(run, compute)
    return run


def traced_test(name: str, compute: Callable[..., Any]) -> Any:
    """Return a test that answers for opaque objects what it would for what they stand for."""

    def run(*args: Any) -> Any:
        if name in _COMPARING or not any(isinstance(arg, Opaque) for arg in args):
            return compute(*args)
        known = _OF_TEXT if isinstance(args[0], Text) else _OF_NUMBER
        if isinstance(args[0], Split) or name not in known:
            raise Untraceable
        return known[name]

    _keep_flag(run, compute)
    return run


def _keep_flag(run: Any, compute: Any) -> None:
    mark = getattr(compute, "jinja_pass_arg", None)
    if mark is not None:
        run.jinja_pass_arg = mark


def _to_json(
    compute: Callable[..., Any], trace: Trace, value: Any, *args: Any, **kwargs: Any
) -> Any:
    if _has_opaque([*args, *kwargs.values()]):
        raise Untraceable
    fill = _filled(value)

    def get(messages: Messages) -> str:
        return str(compute(fill(messages), *args, **kwargs))

    # What is not of the chat's own characters is as long for every chat of this kind.
    trace.num_constant = max(trace.num_constant, len(get(trace.messages)))
    return Text(trace, (Slot(get, _growth(value)),))


def _growth(value: Any) -> int:
    """Return how many characters JSON makes of one of the chat's at most."""
    if isinstance(value, Text):
        return _JSON_GROWTH * value.plain().growth
    if isinstance(value, Split):  # every part has quotes and a comma
        return 4 * _JSON_GROWTH * value.growth
    if isinstance(value, (dict, list, tuple)):
        return sum(map(_growth, value.values() if isinstance(value, dict) else value))
    return _NUMBER_GROWTH if isinstance(value, Number) else 0


def _has_opaque(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_opaque, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_opaque, value))
    return isinstance(value, Opaque)


def _filled(value: Any) -> Callable[[Messages], Any]:
    """Return a function that gives a value with the texts and numbers of a chat in it."""
    if isinstance(value, Text):
        return value.plain().get
    if isinstance(value, (Number, Split)):
        return value.get
    if isinstance(value, dict):
        items = {key: _filled(item) for key, item in value.items()}
        return lambda messages: {key: item(messages) for key, item in items.items()}
    if isinstance(value, (list, tuple)):
        parts = [_filled(item) for item in value]
        return lambda messages: [part(messages) for part in parts]
    return lambda messages: value
