"""One place prints, for every command: results to standard output, the rest to standard error."""

from __future__ import annotations

import ast
import io
import json
import sys
from pathlib import Path

import pytest

import tokenreel.cli
from tokenreel import StoreWriter
from tokenreel.cli.main import main

FILES = sorted(Path(tokenreel.cli.__path__[0]).glob("*.py"))


def calls(file: Path) -> set[str]:
    """Return the names of all functions that a module calls, and what it takes of sys."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_only_one_module_prints(file: Path) -> None:
    printing = {"print", "Console", "sys.stdout"} & calls(file)
    assert bool(printing) == (file.stem == "output")


def test_a_character_that_the_output_lacks_does_not_stop_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=300) as writer:
        writer.add(list(range(100)))
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert main(["show", str(tmp_path / "s")]) == 0
    sys.stdout.flush()
    assert b"100 tokens, 1 document\n" in out.getvalue()


def test_quiet_and_json_leave_notices_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=300) as writer:
        writer.add(list(range(100)))
    (tmp_path / "r.toml").write_text(
        'seq_len = 9\nglobal_batch_size = 2\npasses = 1\n[[sources]]\nname = "s"\npath = "s"\n'
    )
    assert main(["feed", str(tmp_path / "r.toml")]) == 0
    assert "an evaluation: each row once" in capsys.readouterr().err
    for option in ("--quiet", "--json"):
        assert main(["feed", str(tmp_path / "r.toml"), option]) == 0
        captured = capsys.readouterr()
        assert captured.err == "" and captured.out
    assert json.loads(captured.out)["rows"] == 11
