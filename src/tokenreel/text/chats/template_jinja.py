"""A template of plain data as a Jinja text that renders the same, for others to render it by.

Tools and tool calls are left out: a Jinja template writes JSON in another form than ours.
"""

from __future__ import annotations

import json

from tokenreel.text.chats.template import Control, Name, Parts, Template, Text


def jinja_text(template: Template) -> str:
    """Return the Jinja text of a template, with {% generation %} around what is trained.

    >>> from tokenreel.text.chats.template import Control
    >>> end, bot = (Control(control=token) for token in ("<e>", "<a>"))
    >>> jinja_text(Template(name="t", headers=(("assistant", (bot,)),), end=(end,)))[:55]
    '{% for m in messages %}{% if m["role"] == "assistant" %'
    """
    headers = dict(template.headers)
    roles = "".join(
        f'{{% {"elif" if number else "if"} m["role"] == {json.dumps(role)} %}}'
        + _message(template, role)
        for number, role in enumerate(headers)
    )
    unknown = '{% else %}{{ raise_exception("no such role: " ~ m["role"]) }}{% endif %}'
    return "".join(
        (
            _written(template.preamble),
            _default_system(template),
            f"{{% for m in messages %}}{roles}{unknown}{{% endfor %}}",
            f"{{% if add_generation_prompt %}}{_written(headers['assistant'])}{{% endif %}}",
        )
    )


def _message(template: Template, role: str) -> str:
    content = 'm["content"] | trim' if template.strip else 'm["content"]'
    said = f"{_literal(template.lead)}{{{{ {content} }}}}{_written(template.end_of(role))}"
    if role == "assistant":
        said = f"{{% generation %}}{said}{{% endgeneration %}}"
    header = _written(dict(template.headers)[role], has_name=True)
    return f"{header}{said}{_written(template.tail)}"


def _default_system(template: Template) -> str:
    if template.default_system is None:
        return ""
    header, end = dict(template.headers)["system"], template.end_of("system")
    said = _literal(template.lead + template.default_system)
    turn = f"{_written(header)}{said}{_written(end)}{_written(template.tail)}"
    return f'{{% if messages[0]["role"] != "system" %}}{turn}{{% endif %}}'


def _written(parts: Parts, *, has_name: bool = False) -> str:
    return "".join(_part(part, has_name=has_name) for part in parts)


def _part(part: Control | Text | Name, *, has_name: bool) -> str:
    if isinstance(part, Control):
        return _literal(part.control)
    if isinstance(part, Text):
        return _literal(part.text)
    named = f'{_literal(part.name)}{{{{ m["name"] }}}}'
    return f'{{% if m["name"] is string %}}{named}{{% endif %}}' if has_name else ""


def _literal(text: str) -> str:
    # Letters as they are: Jinja reads the escapes of JSON but for those of two surrogates.
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" if text else ""
