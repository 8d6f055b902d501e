"""Errors name keywords that exist; the command line, and nobody else, speaks of flags."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from tokenreel import StoreWriter, build, open_store
from tokenreel.builder.build_settings import BuildSettings
from tokenreel.cli.flags import flag_of
from tokenreel.cli.main import full_parser
from tokenreel.cli.spoken import GIVEN, NAMED, in_flags, spoken
from tokenreel.config.hints import choices_of, hints_of
from tokenreel.errors import ConfigError, MismatchError, SettingsError
from tokenreel.text.tokenizers.train import train_tokenizer

SOURCE = Path(__file__).parent.parent / "src"
# Command lines themselves, what prints command lines to be typed, and a style sheet.
SPEAK_OF_FLAGS = ("tokenreel/cli/", "tokenreel/demo/", "tokenreel/dropin/mapped/prepare.py",
                  "niels_gpt/cache/cli.py", "tokenreel/builder/page_style.py")  # fmt: skip
COMMAND = re.compile(r"\b(tokenreel|ray) [a-z][^\"')]*")  # a whole command, to be typed as it is
FLAG = re.compile(r"(?<![\w-])--[a-z]")
# Names of other libraries, of files of settings, and of classes that are named beside them.
FOREIGN = {
    "read_next_batch",
    "eos_token_id",
    "pat_str",
    "special_tokens",
    "use_fast",
    "encode_batch",
    "asst_id",
}


def said(file: Path) -> Iterator[str]:
    """Yield the strings of a module, docstrings left out, each as one with what follows it."""
    tree = ast.parse(file.read_text())
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    for node in formatted:
        yield "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
    seen = documentation | {id(part) for node in formatted for part in node.values}
    for constant in ast.walk(tree):
        if isinstance(constant, ast.Constant) and id(constant) not in seen:
            yield str(constant.value)


def remedies(folder: str) -> Iterator[tuple[Path, str]]:
    """Yield what the errors of a room advise."""
    for file in sorted((SOURCE / "tokenreel" / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "remedy":
                text = ast.unparse(node.value)
                for string in ast.walk(ast.parse(text)):
                    if isinstance(string, ast.Constant) and isinstance(string.value, str):
                        yield file, string.value


def test_no_flag_is_named_outside_the_command_line() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    wrong = [
        f"{file.relative_to(SOURCE)}: {text}"
        for file in files
        if not str(file.relative_to(SOURCE)).startswith(SPEAK_OF_FLAGS)
        for text in said(file)
        if FLAG.search(COMMAND.sub("", text))
    ]
    assert len(files) > 200 and wrong == []


def test_every_keyword_that_an_error_of_a_build_names_exists() -> None:
    known = FOREIGN.union(
        *(inspect.signature(call).parameters for call in (build, train_tokenizer, open_store))
    )
    known |= set(inspect.signature(StoreWriter).parameters)
    found = {
        (str(file.relative_to(SOURCE)), match[1])
        for folder in ("builder", "text/sources", "text/chats", "text/tokenizers", "store")
        for file, text in remedies(folder)
        for pattern in (GIVEN, NAMED)
        for match in pattern.finditer(text)
    }
    assert {"text_key", "on_bad", "restart", "max_retries"} <= {name for _, name in found}
    assert [pair for pair in sorted(found) if pair[1] not in known] == []


def test_every_keyword_of_build_is_a_flag_of_its_command() -> None:
    commands = next(action for action in full_parser()._actions if action.dest == "command")
    assert isinstance(commands.choices, dict)
    flags = commands.choices["build"]._option_string_actions
    for name, parameter in inspect.signature(build).parameters.items():
        if name not in ("sources", "texts", "chats", "progress", "watch"):
            wanted = f"--no-{flag_of(name)[2:]}" if parameter.default is True else flag_of(name)
            assert wanted in flags and flags[wanted].help


def test_the_help_of_build_says_of_every_keyword_its_meaning_choices_and_default() -> None:
    text = inspect.getdoc(build) or ""
    hidden = {item.name: item.metadata["hidden"] for item in fields(BuildSettings)}
    for name, parameter in inspect.signature(build).parameters.items():
        entry = re.search(rf"^(?:\w+, )?{name}(?:, \w+)?\n((?:    .*\n?)+)", text, re.MULTILINE)
        assert entry, name
        unsaid = [c for c in choices_of(hints_of(build)[name]) if f'"{c}"' not in entry[1]]
        assert unsaid == [*hidden[name]]
        has_default = parameter.default not in (inspect.Parameter.empty, None)
        assert "(default:" in " ".join(entry[1].split()) or not has_default or name == "watch"


FLAGS = {"--text-key", "--on-bad", "--restart", "--no-end-token", "--end-token", "--seed"}


@pytest.mark.parametrize(
    ("keywords", "flags"),
    [
        ("pass restart=True to begin anew", "pass --restart to begin anew"),
        ('pass on_bad="skip" to go on', "pass --on-bad skip to go on"),
        ("name it (end_token=…), or end_token=None", "name it (--end-token …), or --no-end-token"),
        ("name the column with text_key", "name the column with --text-key"),
        ("unknown_word=… and no_flag and 'text_key'", "unknown_word=… and no_flag and 'text_key'"),
        ('seed: 42 → 1, text_key: "a" → "b"', '--seed: 42 → 1, --text-key: "a" → "b"'),
        ("bad seed", "bad --seed"),
        ("seed does not apply to this source", "--seed does not apply to this source"),
        ("a bad seed of evil", "a bad seed of evil"),
        ("data/text_key/on_bad.jsonl", "data/text_key/on_bad.jsonl"),
    ],
)
def test_keywords_become_flags_where_the_command_has_them(keywords: str, flags: str) -> None:
    assert in_flags(keywords, FLAGS) == flags


def test_what_only_programs_can_do_is_not_said_to_people() -> None:
    error = ConfigError(
        "no file matches", where="text_key", remedy="check the path; texts are given as texts=…"
    )
    assert spoken(error, FLAGS) == "text_key: no file matches; check the path"
    alone = ConfigError("no", remedy="give texts as texts=…")
    assert spoken(alone, FLAGS) == "no; give texts as texts=…"


def test_an_error_that_is_spoken_stays_what_it_was() -> None:
    differing = {"seed": (1, 2)}
    for error in (
        MismatchError("other", differing=differing, where="s", remedy="pass restart=True"),
        SettingsError("other", differing=differing, told="seed: 1 → 2", remedy="restart=True"),
    ):
        before = (str(error), dict(error.__dict__))
        assert "--restart" in spoken(error, FLAGS)
        assert (str(error), dict(error.__dict__)) == before
