"""Completion, asked of a real bash."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tokenreel.cli.main import COMMANDS, main


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", "bash"]) == 0
    return capsys.readouterr().out


def completed(script: str, words: list[str], folder: Path) -> set[str]:
    """Return what bash offers for the last of the words."""
    ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_tokenreel"
    program = f"{script}\n{ask}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    run = subprocess.run(
        ["bash", "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_commands_options_words_and_files_are_completed(script: str, tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").touch()
    assert completed(script, ["tokenreel", "''"], tmp_path) >= set(COMMANDS)
    assert completed(script, ["tokenreel", "bu"], tmp_path) == {"build"}
    assert "--val-frac" in completed(script, ["tokenreel", "build", "--va"], tmp_path)
    assert completed(script, ["tokenreel", "build", "--engine", "r"], tmp_path) == {"ray"}
    assert completed(script, ["tokenreel", "build", "do"], tmp_path) == {"docs.jsonl"}


def test_json_carries_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["script"].startswith("#compdef tokenreel")


def test_the_help_lists_every_command_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(name in out and line in out for name, line in COMMANDS.items())
