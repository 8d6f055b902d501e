"""Docstrings as Markdown: an extension of griffe, by which mkdocstrings reads them.

Docstrings here are written for help(): arguments as a name with an indented meaning, examples as
doctests, layouts as indented text, brackets for shapes. Each becomes what shows it on a page.
Settings that are declared in fields are in tables of the reference.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

TABLED = {"build"}  # functions whose settings a page has as a table
ENTRY = re.compile(r"(?:[\w*]+(?:, [\w*]+)*)")


class Docstrings(griffe.Extension):
    """Replace the value of each docstring by its Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of whatever griffe has read."""
        if isinstance(obj, griffe.Function) and any(
            "takes_settings" in str(decorator.value) for decorator in obj.decorators
        ):
            show_keywords(obj)
        if obj.docstring and "is_markdown" not in obj.extra["tokenreel"]:
            obj.extra["tokenreel"]["is_markdown"] = True
            obj.docstring.value = as_markdown(obj.docstring.value)


def show_keywords(function: griffe.Function) -> None:
    """Give a function the keywords that it takes in place of the object that collects them.

    Those that may be left out are shown as one: help() and the tables have each of them.
    """
    taken = getattr(importlib.import_module(function.module.path), function.name)
    shown = []
    for parameter in inspect.signature(taken).parameters.values():
        is_needed = parameter.default is parameter.empty
        if is_needed or parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            kind = griffe.ParameterKind[parameter.kind.name.lower()]
            default = None if is_needed else repr(parameter.default)
            shown.append(griffe.Parameter(parameter.name, kind=kind, default=default))
    rest = griffe.ParameterKind.var_keyword
    function.parameters = griffe.Parameters(*shown, griffe.Parameter("settings", kind=rest))
    if function.docstring and function.name not in TABLED:
        function.docstring.value = inspect.getdoc(taken) or ""


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown.

    >>> print(as_markdown("Return [B, T].\\n\\nname\\n    of it\\n\\n>>> 1\\n1"))
    Return \\[B, T\\].
    <BLANKLINE>
    `name`
    :   of it
    <BLANKLINE>
    ```pycon
    >>> 1
    1
    ```
    """
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n\n".join(filter(None, (_block(block) for block in _joined(blocks))))


def _joined(blocks: list[str]) -> list[str]:
    """Join doctests, and indented stretches, that blank lines divide."""
    joined: list[str] = []
    for block in blocks:
        if joined and _kind(block) in ("example", "layout") and _kind(block) == _kind(joined[-1]):
            joined[-1] += "\n\n" + block
        else:
            joined.append(block)
    return joined


def _kind(block: str) -> str:
    if block.lstrip().startswith(">>> "):
        return "example"
    if all(line.startswith("    ") for line in block.splitlines() if line):
        return "layout"
    lines = block.splitlines()
    is_list = len(lines) > 1 and lines[1].startswith("    ") and ENTRY.fullmatch(lines[0])
    return "entries" if is_list else "prose"


def _block(block: str) -> str:
    kind = _kind(block)
    if kind == "example":
        return f"```pycon\n{block}\n```"
    if kind == "layout":
        lines = (line.removeprefix("    ") for line in block.splitlines())
        return "```text\n" + "\n".join(lines) + "\n```"
    if kind == "entries":
        return _entries(block)
    return _prose(block)


def _entries(block: str) -> str:
    """Return names with their meanings as a definition list."""
    lines: list[str] = []
    is_new = True
    for line in block.splitlines():
        if not line.startswith("    "):
            names = ", ".join(f"`{name}`" for name in line.split(", "))
            lines.append(("\n" if lines else "") + names)
            is_new = True
        else:
            lines.append((":   " if is_new else "    ") + _prose(line.strip()))
            is_new = False
    return "\n".join(lines)


def _prose(text: str) -> str:
    """Escape what Markdown would take for something else, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\[\]<*_|])", r"\\\1", part) for part in parts
    )
