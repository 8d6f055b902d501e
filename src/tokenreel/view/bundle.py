"""Put the modules of the page into one script, for a file that stands by itself.

A module becomes a function that is called once and returns what it exports, in an order in which
each comes behind those that it imports:

    import { make } from "./dom.js";     →   const { make } = module_dom;
    export function draw() {…}           →   function draw() {…}   …   return { draw };

Only the forms that the page's modules keep to are understood; any other is an error, which a test
of the shipped files would show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = r"[A-Za-z_$][\w$]*"
IMPORT = re.compile(
    rf"^import\s+(?:(?P<default>{NAME})\s*)?,?\s*(?:\{{(?P<names>[^}}]*)\}})?\s*"
    r'from\s+"\./(?P<file>[\w.-]+\.js)";?[ \t]*$',
    re.MULTILINE,
)
DECLARED = re.compile(rf"^export\s+(?=(?:async\s+)?(?:function\*?|const|class)\s+({NAME}))", re.M)
LISTED = re.compile(r"^export\s+\{([^}]*)\};?[ \t]*$", re.MULTILINE)
DEFAULT = re.compile(rf"^export\s+default\s+({NAME});?[ \t]*$", re.MULTILINE)
LEFT = re.compile(r"^\s*(?:import|export)\b.*$|\bimport\s*\(", re.MULTILINE)


def bundle_modules(files: Mapping[str, str], entry: str) -> str:
    """Return a script that does what the module `entry` and all that it imports do.

    >>> files = {"a.js": 'import { b } from "./b.js";\\nb();', "b.js": "export function b() {}"}
    >>> print(bundle_modules(files, "a.js"))
    const module_b = (() => {
    function b() {}
    return { b };
    })();
    const module_a = (() => {
    const { b } = module_b;
    b();
    return {  };
    })();
    """
    ordered: list[str] = []
    _visit(entry, files, ordered, ())
    return "\n".join(_as_function(name, files[name]) for name in ordered)


def _visit(name: str, files: Mapping[str, str], ordered: list[str], above: tuple[str, ...]) -> None:
    """Add a module behind those that it imports."""
    if name in above:
        raise ValueError(f"modules import each other in a circle: {' > '.join((*above, name))}")
    if name in ordered:
        return
    if name not in files:
        raise ValueError(f"{above[-1] if above else 'the page'} imports {name}, which is not there")
    for found in IMPORT.finditer(files[name]):
        _visit(found["file"], files, ordered, (*above, name))
    ordered.append(name)


def _as_function(name: str, text: str) -> str:
    exported: dict[str, str] = {}
    for local in DECLARED.findall(text):
        exported[local] = local
    for listed in LISTED.findall(text):
        exported |= {there: here for here, there in _pairs(listed)}
    for local in DEFAULT.findall(text):
        exported["default"] = local
    body = IMPORT.sub(_import, text)
    for pattern in (DECLARED, LISTED, DEFAULT):
        body = pattern.sub("", body)
    left = LEFT.search(body)
    if left is not None:
        raise ValueError(f"{name}: not understood in an export: {left[0].strip()[:80]}")
    given = ", ".join(
        there if there == here else f"{there}: {here}" for there, here in exported.items()
    )
    return f"const {_variable(name)} = (() => {{\n{body.strip()}\nreturn {{ {given} }};\n}})();"


def _import(found: re.Match[str]) -> str:
    taken = [
        there if there == here else f"{there}: {here}"
        for there, here in _pairs(found["names"] or "")
    ]
    taken += [f"default: {found['default']}"] if found["default"] else []
    return f"const {{ {', '.join(taken)} }} = {_variable(found['file'])};"


def _pairs(listed: str) -> list[tuple[str, str]]:
    """Return (name, name as) of what stands between braces."""
    pairs = []
    for item in filter(None, (part.strip() for part in listed.split(","))):
        name, _, other = (word.strip() for word in item.partition(" as "))
        pairs.append((name, other or name))
    return pairs


def _variable(file: str) -> str:
    return "module_" + re.sub(r"\W", "_", file.removesuffix(".js"))
