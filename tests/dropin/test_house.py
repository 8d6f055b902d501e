"""The house of the drop-ins: what docs/contracts.md says of it, and who may enter."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tokenreel import build, dropin
from tokenreel.cli.main import full_parser

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "src" / "tokenreel" / "dropin"
CONTRACTS = (ROOT / "docs" / "contracts.md").read_text()


def imported_from(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_every_path_that_the_summary_names_is_there() -> None:
    named = [name for name in re.findall(r"`([\w./*]+)`", CONTRACTS) if "/" in name]
    assert len(named) > 20
    places = (ROOT, ROOT / "src" / "tokenreel", HOUSE)
    assert [name for name in named if not any(list(p.glob(name)) for p in places)] == []


def test_every_folder_and_shared_module_is_in_the_summary() -> None:
    parts = [path for path in HOUSE.iterdir() if path.name not in ("__init__.py", "__pycache__")]
    told = [f"dropin/{path.name}" + ("/" if path.is_dir() else "") for path in parts]
    assert [name for name in told if f"`{name}" not in CONTRACTS] == []


def test_contracts_do_not_know_each_other_and_the_core_knows_none() -> None:
    projects = sorted(path.name for path in HOUSE.iterdir() if (path / "__init__.py").exists())
    assert projects == ["caches", "episodes", "mapped"]
    wrong = []
    for file in sorted((ROOT / "src" / "tokenreel").rglob("*.py")):
        mine = file.relative_to(HOUSE).parts[0] if file.is_relative_to(HOUSE) else None
        if mine == "__init__.py" or file.name == "prepare_command.py":
            continue
        for module in imported_from(file):
            is_foreign = module.startswith("tokenreel.dropin") and mine is None
            other = module.removeprefix("tokenreel.dropin.").split(".")[0]
            if is_foreign or (other in projects and other != mine):
                wrong.append(f"{file.relative_to(ROOT)} imports {module}")
    assert wrong == []


def test_chats_of_a_contract_are_formatted_without_torch() -> None:
    program = "import sys; sys.modules['torch'] = None\nimport niels_gpt.format, niels_gpt.cache\n"
    program += "from tokenreel.errors import MissingExtraError\nimport tokenreel.dropin\n"
    program += "try: tokenreel.dropin.make_loader\nexcept MissingExtraError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "torch" in done.stdout and "tokenreel.dropin" in done.stdout, done.stderr


def test_every_public_name_is_there_and_no_other() -> None:
    assert all(hasattr(dropin, name) for name in dropin.__all__)
    assert dir(dropin) == sorted(dropin.__all__)
    with pytest.raises(AttributeError, match="no attribute 'make_laoder'"):
        _ = dropin.make_laoder


def test_what_one_contract_alone_needs_is_in_no_help_of_ours() -> None:
    parsers = full_parser()._subparsers
    assert parsers is not None
    commands = parsers._group_actions[0].choices
    assert isinstance(commands, dict) and "build" in commands
    said = full_parser().format_help() + (build.__doc__ or "")
    said += "".join(command.format_help() for command in commands.values())
    assert [name for name in ("torch-buffer", "roam", "niels", "contract") if name in said] == []
