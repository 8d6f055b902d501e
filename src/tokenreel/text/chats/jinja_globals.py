"""What a chat template finds by name: `dict`, `namespace`, tests, the tag {% generation %}."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes

from tokenreel.text.chats.jinja_shadows import GENERATION_START, GENERATION_STOP


class Refused(jinja2.TemplateError):
    """What a template says with raise_exception."""


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


class Dict:
    """`dict` in a template: the constructor, without the attributes of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
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


def of_numbers(test: Any) -> Callable[..., bool]:
    """Return a test that computes `value % number`, for numbers alone: on a text it formats."""

    def run(value: Any, *args: Any) -> bool:
        if isinstance(value, str):
            raise TypeError("a text is neither odd nor even")
        return test(value, *args)

    return run
