"""The parts of the documentation that are made of the code: help, settings, tests, examples."""

from __future__ import annotations

import argparse
import ast
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CITED = re.compile(r"`(test_\w+)`")


def command_line() -> str:
    """Return the help of every command, as the command prints it."""
    from tokenreel.cli.main import GROUPS, full_parser

    commands = next(
        action.choices
        for action in full_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    lines = []
    for group, names in GROUPS.items():
        lines.append(f"## {group[0].upper()}{group[1:]}\n")
        for name, meaning in names.items():
            told = _help(commands[name])
            lines.append(f"### tokenreel {name}\n\n{meaning}\n\n```text\n{told}\n```\n")
    return "\n".join(lines)


def _help(parser: argparse.ArgumentParser) -> str:
    """Return a command's help, whose lines argparse fills to the width of the terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "92"
    try:
        return parser.format_help().rstrip()
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def settings_table(kind: Any) -> str:
    """Return the settings of a dataclass as a table: name, what is accepted, default, meaning."""
    from tokenreel.config.hints import hints_of
    from tokenreel.config.settings import _accepted

    hints = hints_of(kind)
    rows = ["| key | accepts | default | meaning |", "| --- | --- | --- | --- |"]
    for item in fields(kind):
        default = "required" if item.default is MISSING else f"`{_written(item.default)}`"
        accepted = _accepted(item, hints[item.name])
        if (least := item.metadata["least"]) is not None:
            accepted = accepted.replace("a whole number", f"a whole number ≥ {least:,}")
        rows.append(
            f"| `{item.name}` | {_cell(accepted)} | {default} | {_cell(item.metadata['meaning'])} |"
        )
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _written(value: Any) -> str:
    return "none" if callable(value) else repr(value)


def recipe_keys() -> str:
    """Return the settings of recipes, sources and phases."""
    from tokenreel.feed.recipe import Phase, Recipe, Source

    parts = {
        "The recipe": Recipe,
        "A source: `[[sources]]`": Source,
        "A phase: `[[phases]]`": Phase,
    }
    return "\n".join(f"## {name}\n\n{settings_table(kind)}" for name, kind in parts.items())


def build_settings() -> str:
    """Return the settings of a build, under the headings of its help, each with its flag."""
    from tokenreel.builder.build_settings import BuildSettings

    groups: dict[str, list[str]] = {}
    for item in fields(BuildSettings):
        flag = _flag(item)
        row = f"| `{item.name}` | {flag} | {_cell(item.metadata['meaning'])} |"
        groups.setdefault(item.metadata["group"] or "From where, and where to", []).append(row)
    head = "| keyword | flag | meaning |\n| --- | --- | --- |\n"
    return "\n".join(
        f"## {name}\n\n{head}" + "\n".join(rows) + "\n" for name, rows in groups.items()
    )


def _flag(item: Any) -> str:
    from tokenreel.cli.flags import flag_of

    if item.name == "sources":
        return "the first words"
    if item.name in ("texts", "chats", "progress", "watch"):
        return "–"
    return f"`--no-{flag_of(item.name)[2:]}`" if item.default is True else f"`{flag_of(item.name)}`"


def stream_keys() -> str:
    """Return the settings of a stream, section by section, as its file has them."""
    from tokenreel.config.hints import hints_of
    from tokenreel.stream.stream_settings import StreamConfig, TokenizerSettings

    sections = {item.name: hints_of(StreamConfig)[item.name] for item in fields(StreamConfig)}
    kinds = {"data": sections.pop("data"), "data.tokenizer": TokenizerSettings, **sections}
    return "\n".join(f"## `[{name}]`\n\n{settings_table(kind)}" for name, kind in kinds.items())


def examples() -> list[Path]:
    """Return the scripts of examples/."""
    return sorted((ROOT / "examples").glob("*.py"))


def example_list() -> str:
    """Return a table of the examples: what each shows, in the words of its docstring."""
    rows = ["| script | what it shows |", "| --- | --- |"]
    for path in examples():
        said = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
        rows.append(f"| [`{path.name}`](../examples/{path.stem}.md) | {said} |")
    return "\n".join(rows) + "\n"


def example_page(path: Path) -> str:
    """Return the page of an example: its source as it is."""
    text = path.read_text("utf-8").rstrip()
    title = path.stem.replace("_", " ")
    return f'# {title}\n\n```python title="examples/{path.name}"\n{text}\n```\n'


def cited_tests(pages: Iterable[str]) -> dict[str, str]:
    """Return, for each test that a page names, a section that shows its source."""
    wanted = {name for page in pages for name in CITED.findall(page)}
    found = {
        name: f"## {_words(name)} {{ #{name} }}\n\n`{path}`\n\n````python\n{source}\n````\n"
        for name, path, source in tests_of(ROOT / "tests")
        if name in wanted
    }
    return dict(sorted(found.items()))


def _words(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ").capitalize()


def tests_of(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, file and source of every test function."""
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text("utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                source = "\n".join(lines[first - 1 : node.end_lineno])
                yield node.name, path.relative_to(ROOT).as_posix(), source


PARTS = {
    "command-line": command_line,
    "recipe-keys": recipe_keys,
    "build-settings": build_settings,
    "stream-keys": stream_keys,
    "example-list": example_list,
}
