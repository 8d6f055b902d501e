"""The public API: every name is there, and is loaded only when it is used."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokenreel
from tokenreel.cli.main import full_parser


@pytest.mark.parametrize("name", tokenreel.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(tokenreel, name)
    assert isinstance(value, str) or value.__name__ == name
    assert name in dir(tokenreel)


def test_a_name_that_is_not_there_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="module 'tokenreel' has no attribute 'Fed'"):
        tokenreel.Fed  # noqa: B018


def test_importing_tokenreel_loads_no_room_and_not_even_numpy() -> None:
    program = "import sys, tokenreel; print(*(name for name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = run.stdout.split()
    assert "tokenreel" in loaded
    assert [name for name in loaded if name.startswith("tokenreel.")] == []
    assert "numpy" not in loaded


SOURCE = Path(__file__).parents[1] / "src"
ELSEWHERE = {"jax.config.update", "AutoTokenizer.from_pretrained"}  # of other packages


def said_in_errors() -> Iterator[tuple[str, str]]:
    """Yield (place, text) for every text that is part of an error, parts of one f-string as one."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                is_error = node.targets[0].id.endswith("REMEDY")
            elif isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                keywords = {keyword.arg for keyword in node.keywords}
                is_error = name.endswith("Error") or "remedy" in keywords
            else:
                continue
            for text in texts_in(node) if is_error else ():
                yield f"{file.relative_to(SOURCE)}:{node.lineno}", text


def texts_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        parts = [value.value if isinstance(value, ast.Constant) else "…" for value in node.values]
        yield "".join(map(str, parts))
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from texts_in(child)


def test_every_name_of_ours_that_an_error_mentions_is_public() -> None:
    mentioned = {
        (name, place)
        for place, text in said_in_errors()
        for name in re.findall(r"\btokenreel\.[a-z_A-Z.]*\w", text)
    }
    assert {name for name, _ in mentioned} >= {"tokenreel.open_store"}
    for name, place in mentioned:
        _, *path = name.split(".")
        assert path[0] in {*tokenreel.__all__, "stream", "torch", "jax", "grain", "dropin"}, place
        value: object = tokenreel
        for part in path:
            if not hasattr(value, part):
                importlib.import_module(f"tokenreel.{path[0]}")
            value = getattr(value, part)


def test_every_function_that_an_error_mentions_exists() -> None:
    functions = {
        node.name
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    }
    mentioned = {
        (name, place)
        for place, text in said_in_errors()
        for name in re.findall(r"([\w.]+)\(", text)
    }
    assert "state_dict" in {name for name, _ in mentioned}
    missing = [
        f"{place}: {name}"
        for name, place in mentioned
        if name not in ELSEWHERE and name.split(".")[-1] not in functions
    ]
    assert missing == []


def test_every_command_and_flag_that_an_error_mentions_exists() -> None:
    commands = next(
        action.choices
        for action in full_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    mentioned = [
        (place, *found)
        for place, text in said_in_errors()
        for found in re.findall(r"""["(]tokenreel ([a-z-]+)([^")]*)""", text)
    ]
    assert {command for _, command, _ in mentioned} >= {"build", "convert", "verify"}
    for place, command, rest in mentioned:
        assert command in commands, place
        flags = set(re.findall(r"--[a-z-]+", rest))
        assert flags <= set(commands[command]._option_string_actions), place


def test_converting_is_advised_with_the_flag_of_what_is_written() -> None:
    advised = [text for _, text in said_in_errors() if '"tokenreel convert' in text]
    assert advised and all("--out-dtype uint16" in text for text in advised)


@pytest.mark.parametrize("name", ["load_template", "train_tokenizer", "verify"])
def test_what_errors_send_people_to_says_its_arguments_and_results(name: str) -> None:
    function = getattr(tokenreel, name)
    said = inspect.getdoc(function) or ""
    for argument in inspect.signature(function).parameters:
        assert re.search(rf"^{argument}\b|^\w+, {argument}$", said, re.MULTILINE), argument
    assert "Returns" in said


def test_no_two_public_names_differ_by_a_plural_alone() -> None:
    names = set(tokenreel.__all__)
    assert sorted(name for name in names if f"{name}s" in names) == []
    assert {"Document", "DocumentBatch"} <= names
