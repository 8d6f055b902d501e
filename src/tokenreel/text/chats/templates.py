"""The templates that come with tokenreel, those from a TOML file, and the way to a model's own.

`ngpt` is role id + content + end-of-turn id, with a default system text; `chatml`
and `llama3` follow the layouts of those names, with role names and newlines as ordinary text
between control ids. A file says the same in TOML; `load_template` shows one, and
docs/chat-templates.md those of models. A key that does not exist is an error that names it and the
nearest one that does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

from tokenreel.config.config_file import read_toml
from tokenreel.config.hints import did_you_mean
from tokenreel.config.paths import usable_path
from tokenreel.errors import ConfigError
from tokenreel.text.chats.model_template import (
    ModelTemplate,
    is_model_template,
    load_model_template,
    own_template,
)
from tokenreel.text.chats.template import Control, Name, Part, Parts, Template, Text, Wrapping
from tokenreel.text.tokenizers.end_of_text import SPELLINGS, TURN_END
from tokenreel.text.tokenizers.specials import END_OF_TEXT, NGPT_SPECIALS, listed_controls
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer

DEFAULT_SYSTEM_TEXT = "you are a helpful assistant."

NGPT = Template(
    name="ngpt",
    headers=tuple(
        (role, (Control(control=NGPT_SPECIALS[short]),))
        for role, short in (("system", "sys"), ("user", "usr"), ("assistant", "asst"))
    ),
    end=(Control(control=NGPT_SPECIALS["eot"]),),
    default_system=DEFAULT_SYSTEM_TEXT,
)


def _chatml_header(role: str, *, named: Parts = ()) -> Parts:
    if not named:
        return (Control(control="<|im_start|>"), Text(text=f"{role}\n"))
    return (Control(control="<|im_start|>"), Text(text=role), *named, Text(text="\n"))


CHATML = Template(
    name="chatml",
    headers=(
        ("system", _chatml_header("system")),
        ("user", _chatml_header("user", named=(Name(name=" name="),))),
        ("assistant", _chatml_header("assistant")),
        ("tool", _chatml_header("tool", named=(Name(name=" name="),))),
    ),
    end=(Control(control="<|im_end|>"),),
    tail=(Text(text="\n"),),
    calls=Wrapping(open="\n<tool_call>\n", close="\n</tool_call>"),
    tools=Wrapping(before="\n\n<tools>", open="\n", after="\n</tools>"),
)


def _llama3_header(role: str) -> Parts:
    return (
        Control(control="<|start_header_id|>"),
        Text(text=role),
        Control(control="<|end_header_id|>"),
        Text(text="\n\n"),
    )


LLAMA3 = Template(
    name="llama3",
    headers=(
        ("system", _llama3_header("system")),
        ("user", _llama3_header("user")),
        ("assistant", _llama3_header("assistant")),
        ("tool", _llama3_header("ipython")),
    ),
    end=(Control(control="<|eot_id|>"),),
    preamble=(Control(control="<|begin_of_text|>"),),
    calls=Wrapping(open="\n"),
    tools=Wrapping(before="\n\nTools:", open="\n"),
)

BUILT_IN: Mapping[str, Template] = {template.name: template for template in (NGPT, CHATML, LLAMA3)}


@overload
def load_template(name_or_file: Literal["ngpt", "chatml", "llama3"]) -> Template: ...


@overload
def load_template(
    name_or_file: str | PathLike[str],
    *,
    tokenizer: object = None,
    args: Mapping[str, Any] | None = None,
    today: date | None = None,
) -> Template | ModelTemplate: ...


def load_template(
    name_or_file: str | PathLike[str],
    *,
    tokenizer: object = None,
    args: Mapping[str, Any] | None = None,
    today: date | None = None,
) -> Template | ModelTemplate:
    """Return a template: a built-in one by name, that of a TOML file, or a model's own.

    name_or_file
        "chatml", "llama3" or "ngpt"; the path of a .toml file; the folder of a model's
        tokenizer, its tokenizer_config.json or chat_template.jinja (behind a colon the name of
        one of several); or "model" for the template of the tokenizer
    tokenizer
        what "model" is taken from: a folder, a file in it, or a tokenizer of transformers
    args
        arguments of a model's own template, such as {"enable_thinking": False}
    today
        the date that a model's own template may write (default: today)

    Returns a Template or a ModelTemplate, which `tokenreel.build` takes as `template`; what is no
    template is a ConfigError that names the nearest.

    A file says what stands around each message, as a list of parts: a control token of the
    tokenizer, ordinary text, or the place of the message's name with the text before it. Only
    `headers` (with the assistant's) and `end` are needed; a role without a header is refused.
    Between two control tokens all text is encoded as one, as the model's tokenizer does it.

        name = "mine"
        preamble = [{control = "<s>"}]       # once, before the first message
        end = [{control = "</s>"}]           # behind every message; trained with an answer
        tail = [{text = "\\n"}]              # behind that; never trained
        lead = " "                           # before every content, and trained with it
        strip = true                         # blanks at both ends of a content go first
        default_system = "be brief"          # the system turn of chats that have none

        [headers]                            # before a message; never trained
        system = [{control = "<|system|>"}]
        user = [{control = "<|user|>"}, {name = " name="}, {text = "\\n"}]
        assistant = [{control = "<|assistant|>"}, {text = "\\n"}]
        tool = [{control = "<|user|>"}, {text = "tool\\n"}]

        [ends]                               # roles with an end of their own; [] for none
        system = [{control = "<|end_of_system|>"}]

        [calls]                              # around each tool call, behind an answer
        open = "<tool_call>"
        close = "</tool_call>"

        [tools]                              # around the schemas of tools, behind the system text
        before = "<tools>"
        open = "\\n"
        after = "</tools>"

    >>> load_template("chatml").name
    'chatml'
    """
    name_or_file = os.fspath(name_or_file)
    if name_or_file == "model":
        return own_template(tokenizer, args=args, today=today)
    if name_or_file in BUILT_IN:
        return _without_args(BUILT_IN[name_or_file], args)
    path = usable_path(name_or_file)
    if is_model_template(path):
        return load_model_template(path, args=args, today=today)
    if path.suffix != ".toml" and not path.is_file():
        raise ConfigError(
            f"no template {name_or_file!r}",
            expected=f"one of {', '.join(BUILT_IN)}, a .toml file, or the folder, "
            "tokenizer_config.json or chat_template.jinja of a model's tokenizer",
            remedy=did_you_mean(name_or_file, [*BUILT_IN, "model"]),
        )
    try:
        facts = read_toml(path)
    except ConfigError as error:
        raise ConfigError(
            f"not a template: {error.what}", where=path, expected=error.expected
        ) from error
    return _without_args(template_from(facts, where=str(path)), args)


def _without_args(template: Template, args: Mapping[str, Any] | None) -> Template:
    if args:
        raise ConfigError(
            f"the template {template.name!r} takes no arguments",
            actual=", ".join(args),
            remedy="arguments are for a model's own template, which is Jinja",
        )
    return template


def fitting_template(tokenizer: Tokenizer) -> Template:
    """Return the one built-in template whose control tokens the tokenizer all has.

    Where none fits, or several do, that is a ConfigError: rendered with the wrong template
    a model would learn turns that nobody will ever show it.

    >>> from tokenreel.text.tokenizers import byte_tokenizer
    >>> fitting_template(byte_tokenizer(["<|im_start|>", "<|im_end|>"])).name
    'chatml'
    """
    known = tokenizer.control_ids
    fitting = [t for t in BUILT_IN.values() if all(token in known for token in t.controls)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ConfigError(
            "the tokenizer has the control tokens of several chat templates",
            actual=", ".join(template.name for template in fitting),
            remedy="say which one the model is to learn (template=…)",
        )
    wanted = "; or ".join(f"{t.name}: {' '.join(t.controls)}" for t in BUILT_IN.values())
    raise ConfigError(
        "no built-in chat template fits the control tokens of the tokenizer",
        expected=wanted,
        actual=listed_controls(known) or "none",
        remedy="describe its template in a .toml file, as the help of "
        "tokenreel.load_template shows, and name that (template=…); "
        "or use a tokenizer that has the control tokens of one",
    )


def specials_for(template: Template | ModelTemplate) -> tuple[str, ...]:
    """Return the control tokens of a tokenizer that is made for a template.

    They begin with the end of a document, unless one of the template's own ends documents too.

    >>> specials_for(CHATML)
    ('<|endoftext|>', '<|im_start|>', '<|im_end|>')
    """
    if isinstance(template, ModelTemplate):
        raise ConfigError(
            "a model's own template does not say what control tokens it needs",
            where=template.where,
            remedy="name them one by one, or use the model's own tokenizer",
        )
    ends = {*SPELLINGS, TURN_END}.intersection(template.controls)
    return template.controls if ends else (END_OF_TEXT, *template.controls)


def template_from(facts: Mapping[str, object], *, where: str = "template") -> Template:
    """Return the template that plain data (of a TOML file) describes."""
    _refuse_unknown(facts, Template.__slots__, where=where)
    _require(facts, ("headers", "end"), where=where)
    optional: dict[str, Any] = {}
    for keys, read in (
        (("end", "tail", "preamble"), _parts),
        (("lead", "default_system"), _string),
        (("strip",), _flag),
        (("ends",), _by_role),
        (("calls", "tools"), _wrapping),
    ):
        optional |= {key: read(facts[key], f"{where}: {key}") for key in keys if key in facts}
    return Template(
        name=_string(facts.get("name", Path(where).stem), f"{where}: name"),
        headers=_by_role(facts["headers"], f"{where}: headers"),
        **optional,
    )


def _by_role(value: object, where: str) -> tuple[tuple[str, Parts], ...]:
    table = _table(value, where)
    return tuple((role, _parts(parts, f"{where}.{role}")) for role, parts in table.items())


def _parts(value: object, where: str) -> Parts:
    if not isinstance(value, (list, tuple)):
        raise ConfigError("not a list of parts", where=where, expected="a list", actual=repr(value))
    return tuple(_part(entry, f"{where}[{number}]") for number, entry in enumerate(value))


def _part(entry: object, where: str) -> Part:
    table = _table(entry, where)
    _refuse_unknown(table, ("control", "text", "name"), where=where)
    if len(table) != 1:
        raise ConfigError("a part is one of control, text or name", where=where, actual=len(table))
    ((kind, value),) = table.items()
    text = _string(value, f"{where}.{kind}")
    if kind == "control":
        return Control(control=text)
    return Text(text=text) if kind == "text" else Name(name=text)


def _wrapping(value: object, where: str) -> Wrapping:
    table = _table(value, where)
    _refuse_unknown(table, Wrapping.__slots__, where=where)
    return Wrapping(**{key: _string(text, f"{where}.{key}") for key, text in table.items()})


def _table(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError("not a table", where=where, expected="a table", actual=repr(value))
    return value


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError("not a string", where=where, expected="a string", actual=repr(value))
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError("not a flag", where=where, expected="true or false", actual=repr(value))
    return value


def _require(facts: Mapping[str, object], keys: Iterable[str], *, where: str) -> None:
    for key in keys:
        if key not in facts:
            raise ConfigError(f"the key {key!r} is missing", where=where)


def _refuse_unknown(facts: Mapping[str, object], known: Iterable[str], *, where: str) -> None:
    for key in facts:
        if key not in (names := list(known)):
            raise ConfigError(
                f"no key {key!r} in a template",
                where=where,
                expected=f"one of {', '.join(names)}",
                remedy=did_you_mean(key, names),
            )
