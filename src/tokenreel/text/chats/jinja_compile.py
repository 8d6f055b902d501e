"""A chat template compiled so that its output tells what the template itself wrote.

The text of the template is parsed by Jinja; in its tree
- literals that are written out get the shadows of their control tokens (jinja_shadows.py);
- literals that are only looked for (in comparisons, tests, subscripts, `split`, `startswith`, …)
  stay as they are, and what they are compared with is spelled out first;
- every body of a loop begins with a step of the budget, which also notes at which place of the
  output a message comes up (`Watch`), and its condition is a step too;
- the last loop goes through messages that tell the watch when they come up (jinja_prefixes.py);
- `~`, slices and long lists are counted by the budget (jinja_budget.py).

Compiled once, about 10 milliseconds for a template of 100 lines; a rendering costs what it does
in transformers and about a quarter more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from tokenreel.errors import ConfigError
from tokenreel.text.chats.jinja_prefixes import Tail, tail_of
from tokenreel.text.chats.jinja_sandbox import Sandbox
from tokenreel.text.chats.jinja_shadows import GENERATION_START, NOT_OF_TEMPLATES, Shadows

MAX_TEMPLATE_CHARACTERS = 1_000_000
# Methods and filters whose arguments are looked for and never written out.
_SOUGHT_BY_METHOD = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith"}
_SOUGHT_BY_METHOD |= {"find", "rfind", "index", "rindex", "count", "strip", "lstrip", "rstrip"}
_SOUGHT_BY_METHOD |= {"removeprefix", "removesuffix", "get", "format_map"}
_SOUGHT_BY_FILTER = {"select", "reject", "selectattr", "rejectattr", "map", "groupby", "sort"}
_SOUGHT_BY_FILTER |= {"unique", "attr", "dictsort", "min", "max", "sum", "trim"}
_SOUGHT_KEYWORDS = {"attribute", "chars"}
_NO_WORD = re.compile(r"[^\w\s]")
# Tests without arguments that look at more than the kind of what they are given.
_TESTS_OF_VALUES = {"filter", "lower", "test", "upper"}
_FEW = 16  # items of a list that need no count
_SOUGHT_BY_GLOBAL = {"raise_exception", "strftime_now"}


Pieces = Callable[[dict[str, Any]], Iterator[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled template, ready to render; not for two threads at once.

    given: the variables that all chats have.
    tail, tail_pieces: what it writes behind the messages (jinja_prefixes.py).
    sought: the texts that it looks for anywhere, those of words and blanks left out.
    """

    environment: Sandbox
    given: Mapping[str, Any]
    pieces: Pieces
    tail: Tail | None
    tail_pieces: Pieces | None
    has_generation: bool
    nested_generation: bool
    sought: tuple[str, ...]

    def run(self, variables: dict[str, Any], *, num_characters: int) -> str:
        """Return the output, shadows and marks in it; `num_characters` is the size of the chat."""
        budget, watch = self.environment.budget, self.environment.watch
        budget.renew(num_characters)
        self.environment.touched = False
        followed = watch.renew(variables["messages"])
        variables["messages"] = list(variables["messages"]) if self.tail is None else followed
        add = watch.parts.append
        for part in self.pieces(variables):
            add(part)
        budget.text(watch.position())
        return "".join(watch.parts)


@dataclass(frozen=True, slots=True)
class Treatment:
    """What becomes of a literal that is written out, and of one that is a pattern for `format`."""

    literal: Callable[[str], str]
    pattern: Callable[[str], str]


def compile_template(
    text: str,
    shadows: Shadows,
    *,
    today: date,
    treatment: Treatment,
    given: Mapping[str, Any],
    where: str,
) -> Program:
    """Compile a template with its literals treated; all chats are `given` the same variables."""
    environment = Sandbox(shadows, today=today)
    watch, step_of_budget = environment.watch, environment.budget.step

    def step(item: object, loop: int, num_characters: int) -> str:
        step_of_budget(num_characters)
        if type(item) is str:
            environment.see(item)
        else:
            watch.see(loop, item)
        return ""

    environment.filters |= {"_step": step, "_taken_up": watch.take_up}
    tree = parse_template(text, environment, where=where)
    marks, tail = list(_generations(tree)), tail_of(tree)
    rewriter = _Rewriter(treatment)
    tail_pieces = None
    try:
        rewriter.visit(tree)
        if tail is not None:
            loop = cast(nodes.For, tree.body[tail.start - 1])
            loop.iter = _filtered(loop.iter, "_taken_up")
            tail_pieces = _pieces(nodes.Template(tree.body[tail.start :], lineno=1), environment)
        pieces = _pieces(tree, environment)
    except (jinja2.TemplateError, RecursionError, SyntaxError) as error:
        raise _unreadable(error, where) from None
    return Program(
        environment=environment,
        given={**environment.globals, **given},
        pieces=pieces,
        tail=tail,
        tail_pieces=tail_pieces,
        has_generation=bool(marks),
        nested_generation=any(marks),
        sought=tuple(dict.fromkeys(filter(_NO_WORD.search, rewriter.sought))),
    )


def _pieces(tree: nodes.Template, environment: Sandbox) -> Pieces:
    tree.set_environment(environment)
    code = environment.compile(tree)
    template = environment.template_class.from_code(environment, code, environment.globals)
    return lambda variables: template.root_render_func(template.new_context(variables, shared=True))


def parse_template(text: str, environment: Sandbox, *, where: str) -> nodes.Template:
    """Return the tree of a template, or raise ConfigError for what is none."""
    if len(text) > MAX_TEMPLATE_CHARACTERS:
        raise ConfigError(
            "a chat template of this size",
            where=where,
            expected=f"at most {MAX_TEMPLATE_CHARACTERS:,} characters",
            actual=len(text),
        )
    refuse_ours(text, where=where)
    try:
        tree = environment.parse(text)
    except (jinja2.TemplateError, RecursionError) as error:
        raise _unreadable(error, where) from None
    if next(tree.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier)), None):
        raise ConfigError("the template escapes HTML ({% autoescape %})", where=where)
    for constant in constants(tree):
        refuse_ours(constant, where=where)
    return tree


def constants(tree: nodes.Template) -> list[str]:
    """Return every text between quotes, as its escapes say."""
    return [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]


def refuse_ours(text: str, *, where: str) -> None:
    """Refuse characters that stand for control tokens here, in what is not a chat."""
    found = None if text.isascii() else NOT_OF_TEMPLATES.search(text)
    if found:
        raise ConfigError(
            "a template, its arguments or special tokens with a private-use character",
            where=where,
            expected="no character of planes 15 and 16, and no lone surrogate",
            actual=f"U+{ord(found[0]):04X}",
        )


def literals(tree: nodes.Template) -> list[str]:
    """Return every literal of a template that is written out."""
    found: list[str] = []

    def collect(text: str) -> str:
        found.append(text)
        return text

    _Rewriter(Treatment(collect, collect)).visit(tree)
    return found


def _unreadable(error: Exception, where: str) -> ConfigError:
    line = getattr(error, "lineno", None)
    place = where if line is None else f"{where}: line {line}"
    what = getattr(error, "message", None) or str(error) or type(error).__name__
    return ConfigError(f"not a chat template: {what}", where=place, expected="a Jinja template")


def _generations(tree: nodes.Node, *, captured: bool = False) -> Iterator[bool]:
    """Yield for each {% generation %} whether it lies in a macro or another captured text."""
    for node in tree.iter_child_nodes():
        inner = captured or isinstance(
            node, (nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock)
        )
        if isinstance(node, nodes.TemplateData) and node.data == GENERATION_START:
            yield inner
        yield from _generations(node, captured=inner)


class _Rewriter(NodeTransformer):
    """Put shadows into what is written out, and steps into loops."""

    def __init__(self, treatment: Treatment) -> None:
        self._literal = treatment.literal
        self._pattern = treatment.pattern
        self._num_loops = 0
        self.sought: list[str] = []

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        node.data = self._literal(node.data)
        return node

    def visit_Const(self, node: nodes.Const) -> nodes.Node:  # noqa: N802
        if isinstance(node.value, str):
            node.value = self._literal(node.value)
        return node

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        # 'a' + 'b' is one literal: a control token may be written in two.
        if all(isinstance(side, nodes.Const) for side in _flat(node, nodes.Add)):
            values = [side.value for side in _flat(node, nodes.Add)]
            if all(isinstance(value, str) for value in values):
                return self.visit(nodes.Const("".join(values)).set_lineno(node.lineno))
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        parts: list[Any] = []
        for part in node.nodes:
            if parts and _text(part) is not None and _text(parts[-1]) is not None:
                parts[-1] = nodes.Const(parts[-1].value + _text(part)).set_lineno(node.lineno)
            else:
                parts.append(part)
        items = nodes.Tuple([self.visit(part) for part in parts], "load")
        return _filtered(items.set_lineno(node.lineno), "_joined")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        node.expr = self._sought(node.expr)
        for operand in node.ops:
            by = "_within" if operand.op in ("in", "notin") else "_compared"
            operand.expr = self._sought(operand.expr, by=by)
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        is_seen = node.args or node.name in _TESTS_OF_VALUES
        node.node = self._sought(node.node) if is_seen else self.visit(node.node)
        node.args = [self._sought(arg) for arg in node.args]
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        node.node = self.visit(node.node)
        if isinstance(node.arg, nodes.Slice):
            self.generic_visit(node.arg)
            return _filtered(node, "_cut")
        if not isinstance(node.arg, nodes.Const):
            node.arg = self._sought(node.arg)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        node.key = self._sought(node.key)
        node.value = self.visit(node.value)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._literal_list(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        return self._literal_list(node) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._literal_list(node)

    def _literal_list(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        return node if len(node.items) <= _FEW else _filtered(node, "_kept")

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        # What is a text already needs no question what it is.
        children: Any = [
            child
            if (text := _text(child)) is None
            else nodes.TemplateData(text).set_lineno(node.lineno)
            for child in node.nodes
        ]
        node.nodes = children
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        name = node.node.attr if isinstance(node.node, nodes.Getattr) else ""
        is_global = isinstance(node.node, nodes.Name) and node.node.name in _SOUGHT_BY_GLOBAL
        if name in _SOUGHT_BY_METHOD or is_global:
            # The fallback of `get` may be written out; all else is looked for.
            num_sought = 1 if name == "get" else len(node.args)
            node.node = self.visit(node.node)
            node.args = [
                self._sought(arg) if number < num_sought else self.visit(arg)
                for number, arg in enumerate(node.args)
            ]
            return node
        if name == "replace" and node.args:
            node.node = self.visit(node.node)
            node.args = [self._sought(node.args[0]), *map(self.visit, node.args[1:])]
            return node
        if name == "format":
            receiver = cast(nodes.Getattr, node.node)
            receiver.node = self._visit_pattern(receiver.node)
            node.args = [self.visit(arg) for arg in node.args]
            for keyword in node.kwargs:
                self.visit(keyword)
            return node
        return self.generic_visit(node)

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:  # noqa: N802
        node.left, node.right = self._visit_pattern(node.left), self.visit(node.right)
        return node

    def _visit_pattern(self, node: nodes.Expr) -> Any:
        """Return what `format` or `%` is applied to: its fields stay as they are."""
        text = _text(node)
        if text is None:
            return self.visit(node)
        return nodes.Const(self._pattern(text)).set_lineno(node.lineno)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        if node.node is not None:
            visit = self._visit_pattern if node.name == "format" else self.visit
            node.node = visit(node.node)
        node.args = self._filter_args(node.name, node.args)
        for keyword in node.kwargs:
            is_sought = keyword.key in _SOUGHT_KEYWORDS
            keyword.value = (self._sought if is_sought else self.visit)(keyword.value)
        return node

    def _filter_args(self, name: str | None, args: list[nodes.Expr]) -> list[Any]:
        """Return the arguments of a filter, those that are only looked for as they are."""
        if name == "map" and args and (mapped := _text(args[0])) is not None:
            return [args[0], *self._filter_args(mapped, args[1:])]
        num_sought = len(args) if name in _SOUGHT_BY_FILTER else int(name == "replace")
        return [
            self._sought(arg) if number < num_sought else self.visit(arg)
            for number, arg in enumerate(args)
        ]

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self._num_loops += 1
        number = self._num_loops
        # With several targets the first of them is seen: no message, but a step all the same.
        target: Any = node.target
        while not isinstance(target, nodes.Name):
            target = target.items[0]
        self.generic_visit(node)
        if node.test is not None:
            node.test = _filtered(node.test, "_tested")
        written = (data.data for part in node.body for data in part.find_all(nodes.TemplateData))
        item = nodes.Name(target.name, "load").set_lineno(node.lineno)
        step = _filtered(item, "_step", number, sum(map(len, written)))
        node.body = [nodes.ExprStmt(step).set_lineno(node.lineno), *node.body]
        return node

    def _sought(self, node: nodes.Expr, *, by: str = "_compared") -> Any:
        """Return an expression as comparisons see it: constants as they are, the rest spelled."""
        if isinstance(node, nodes.Const):
            if isinstance(node.value, str):
                self.sought.append(node.value)
            return node
        if isinstance(node, (nodes.List, nodes.Tuple)):
            node.items = [self._sought(item) for item in node.items]
            return node
        return _filtered(self.visit(node), by)


def _filtered(node: Any, name: str, *numbers: int) -> Any:
    args = [nodes.Const(number).set_lineno(node.lineno) for number in numbers]
    return nodes.Filter(node, name, args, [], None, None).set_lineno(node.lineno)


def _flat(node: nodes.Expr, kind: type[nodes.BinExpr]) -> list[Any]:
    if isinstance(node, kind):
        return [*_flat(node.left, kind), *_flat(node.right, kind)]
    return [node]


def _text(node: nodes.Node) -> str | None:
    return node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else None
