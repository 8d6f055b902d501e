"""What one rendering of a chat tells of the renderings of its first messages.

Masks are checked by what a template writes for the first n messages of a chat. Most templates go
through the messages once and write nothing behind them but a prompt:

    head                     {{ bos_token }}{% if messages[0].role == 'system' %} …
    loop over the messages   {% for message in messages %} … {% endfor %}
    tail                     {% if add_generation_prompt %}<|im_start|>assistant{% endif %}

A template is a program without chance. Until it looks at something that tells `messages` from
`messages[:n]`, it does the same for both; so if the first such thing is that the loop takes up
message n, then both have written the same until there, the one of the first n messages leaves
the loop here, and writes the tail. The tail is the same for both if it knows nothing of what came
before. The rendering of the first n messages is then what the whole wrote until message n came
up, and the tail.

    `tail_of`     the tail of such a template; None for all others
    `Followed`    the messages, which tell the watch what is looked at before its turn
    `Watch`       what one rendering looked at

Where a template looks ahead (`loop.last`, `messages[loop.index]`), nothing is told of the messages
up to there; where it looks at all of them (`messages | length`, `messages[-1]`), nothing at all.
What is not told is rendered (jinja_script.py). Bounds of size and time are those of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes
from jinja2.runtime import LoopContext

PROMPT = "add_generation_prompt"
_NOT_OF_TAILS = frozenset(("messages", "tools", "documents", "loop"))
# What `loop` tells without a look at the next message.
_OF_LOOPS = frozenset(
    ("changed", "cycle", "index", "index0", "first", "previtem", "depth", "depth0")
)
_TESTS = frozenset(("defined", "undefined", "none", "true", "false", "string", "boolean"))
_PLAIN: Any = (nodes.Output, nodes.If, nodes.Const, nodes.TemplateData, nodes.And, nodes.Or)
_PLAIN += (nodes.Not, nodes.Compare, nodes.Operand, nodes.Add, nodes.Concat, nodes.CondExpr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What a template writes behind its loop over the messages.

    start: the number of its first statement; the one before is the loop.
    names: the variables that it asks for; no statement assigns them.
    has_all_prompts: whether only the tail asks for the prompt.
    """

    start: int
    names: frozenset[str]
    has_all_prompts: bool


def tail_of(tree: nodes.Template) -> Tail | None:
    """Return the tail of a template, or None if it tells nothing of the first messages."""
    body = tree.body
    names = list(tree.find_all(nodes.Name))
    assigned = {name.name for name in names if name.ctx != "load"}
    assigned |= {macro.name for macro in tree.find_all(nodes.Macro)}
    start = len(body)
    while start and _is_plain(body[start - 1], assigned | _NOT_OF_TAILS):
        start -= 1
    loop = body[start - 1] if start else None
    if not isinstance(loop, nodes.For) or loop.recursive or loop.else_:
        return None
    known = _OF_LOOPS if loop.test is not None else None
    if _hides_loop(nodes.Template(loop.body), known) or next(tree.find_all(nodes.Block), None):
        return None
    of_tail = {id(name) for part in body[start:] for name in part.find_all(nodes.Name)}
    return Tail(
        start=start,
        names=frozenset(name.name for name in names if id(name) in of_tail),
        has_all_prompts=all(id(n) in of_tail for n in names if n.name == PROMPT),
    )


def _is_plain(node: nodes.Node, unknown: set[str]) -> bool:
    """Tell whether a statement writes what literals and given variables alone say."""
    if isinstance(node, nodes.Name):
        return node.name not in unknown
    if isinstance(node, nodes.Test):
        if node.name not in _TESTS or node.args or node.kwargs:
            return False
    elif not isinstance(node, _PLAIN):
        return False
    return all(_is_plain(child, unknown) for child in node.iter_child_nodes())


def _hides_loop(node: nodes.Node, known: frozenset[str] | None) -> bool:
    """Tell whether statements use `loop` for more than its attributes, or for unknown ones.

    known: attributes that do not look ahead, where the watch does not see it.
    """
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Name) and child.name == "loop":
            if not isinstance(node, nodes.Getattr) or (known and node.attr not in known):
                return True
        elif isinstance(child, nodes.For):  # in its body, `loop` is another
            if _hides_loop(nodes.Template([child.iter, *child.else_]), known):
                return True
        elif _hides_loop(child, known):
            return True
    return False


class Followed(list[Any]):
    """The messages of a chat, or those behind the first: a list that notes what is looked at."""

    __slots__ = ("_offset", "_watch")

    def __init__(self, items: Sequence[Any], watch: Watch, offset: int = 0) -> None:
        super().__init__(items)
        self._watch = watch
        self._offset = offset

    def __getitem__(self, key: Any) -> Any:
        found, size = super().__getitem__, super().__len__()
        if isinstance(key, int) and 0 <= key < size:
            self._watch.see_until(self._offset + key + 1)
            return found(key)
        if isinstance(key, slice) and key.stop is None and key.step is None:
            start = key.start or 0
            if isinstance(start, int) and 0 <= start <= size:  # what is done to it tells more
                return Followed(found(key), self._watch, self._offset + start)
        self._watch.is_lost = True
        return found(key)

    def taken_up(self) -> Iterator[Any]:
        """Yield the messages to the loop, and note how much was written until then."""
        watch = self._watch
        watch.is_lost |= bool(watch.taken)
        watch.offset = self._offset
        for index, item in enumerate(super().__iter__(), self._offset):
            watch.taken[index] = watch.position()
            yield item

    def __radd__(self, other: Any) -> Any:
        self._watch.is_lost = True
        return other + list(super().__iter__())

    def __bool__(self) -> bool:
        if not super().__len__():
            self._watch.is_lost = True
            return False
        self._watch.see_until(self._offset + 1)
        return True


# As Jinja calls it, where a message is missing: "list object has no element 4".
Followed.__module__, Followed.__name__ = list.__module__, list.__name__


def _noting(name: str) -> Callable[..., Any]:
    """Return a method of lists that tells more of the messages than which came up."""
    method = getattr(list, name)

    def run(self: Followed, *args: Any, **kwargs: Any) -> Any:
        self._watch.is_lost = True
        return method(self, *args, **kwargs)

    return run


_OBJECTS = {"__class_getitem__", "__doc__", "__getattribute__", "__hash__", "__new__", "__sizeof__"}
for _name in vars(list).keys() - vars(Followed).keys() - _OBJECTS:
    setattr(Followed, _name, _noting(_name))


class Watch:
    """What a template looks at in one rendering; renewed for every one.

    parts: what it wrote so far; taken: how much that was when its loop took up a message.
    is_lost: whether it looked at all messages at once, or went through them more than once.
    """

    def __init__(self) -> None:
        self.renew([])

    def renew(self, messages: Sequence[Any]) -> Followed:
        """Begin a rendering of messages; return them as the template is to see them."""
        self._indexes = {id(message): index for index, message in enumerate(messages)}
        self._passes: dict[int, dict[int, int]] = {}
        self.taken: dict[int, int] = {}
        self.parts: list[str] = []
        self._counted = (0, 0)  # parts, and characters in them
        self._untold: set[int] = set()
        self._loop: Any = None
        self.is_lost = False
        self.offset = 0
        return Followed(messages, self)

    def position(self) -> int:
        """Return how many characters are written."""
        num_parts, size = self._counted
        if num_parts < len(self.parts):
            size += sum(map(len, self.parts[num_parts:]))
            self._counted = len(self.parts), size
        return size

    def see(self, loop: int, item: object) -> None:
        """Note that a loop is at an item; only messages are noted, the last time they come."""
        index = self._indexes.get(id(item))
        if index is not None:
            if loop not in self._passes:
                self._passes[loop] = {}
            self._passes[loop][index] = self.position()

    def see_until(self, num_messages: int) -> None:
        """Note a look at the first messages: if they have not come up, it tells less from more."""
        num_taken = max(self.taken, default=-1) + 1
        self._untold.update(range(num_taken, num_messages))

    def take_up(self, value: Any) -> Any:
        """Return what the loop over the messages goes through."""
        if type(value) is not Followed:
            return value
        self._loop = value.taken_up()
        return self._loop

    def see_loop(self, loop: LoopContext, attribute: str) -> None:
        """Note a look at a loop; that over the messages tells whether it is at its end."""
        if loop._iterable is self._loop and attribute not in _OF_LOOPS:
            if attribute in ("last", "nextitem"):
                self._untold.add(self.offset + loop.index)
            else:
                self.is_lost = True

    def starts(self) -> dict[int, int]:
        """Return where messages came up, in the loop that wrote most between them."""
        passes = list(self._passes.values())
        best = passes[0] if len(passes) == 1 else max(passes, key=_num_places, default={})
        indexes, places = list(best), list(best.values())
        if indexes != sorted(indexes):
            best = dict(sorted(best.items()))
            places = list(best.values())
        return best if places == sorted(places) else {}

    def prefixes(self) -> frozenset[int]:
        """Return those n for which the first n messages are written alike until n comes up."""
        if self.is_lost or len(self._passes) != 1:
            return frozenset()
        [starts] = self._passes.values()
        told = [n for n, place in self.taken.items() if starts.get(n) == place]
        return frozenset(told) - self._untold


def _num_places(places: Mapping[int, int]) -> int:
    return len(set(places.values()))
