"""The command line: what it prints, what it exits with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tokenreel import Provenance, StoreWriter
from tokenreel.cli.main import COMMANDS, main


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "books"
    tokenizer = {"kind": "byte", "name": "byte"}
    with StoreWriter(path, vocab_size=259, provenance=True, tokenizer=tokenizer) as writer:
        for number, text in enumerate(["hello \x1b[31mred\x1b[0m", "two"]):
            place = Provenance(file="a.txt", row=number)
            writer.add(list(text.encode()), provenance=place)
    return path


def test_show_says_what_it_is(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(store)]) == 0
    out = capsys.readouterr().out
    assert "native" in out and "uint16" in out and "a.txt:1" in out and "hello" in out


def test_stored_text_cannot_command_the_terminal(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["show", str(store)])
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out and "\\x1b[31mred" in out


@pytest.mark.parametrize("command", ["show", "verify", "prepare"])
def test_json_is_one_object_on_standard_output(
    store: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(store)


def test_verify_exits_with_1_and_names_the_file(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = store / "train" / "shard_00000.bin"
    shard.write_bytes(b"\0" * shard.stat().st_size)
    assert main(["verify", str(store)]) == 1
    assert "shard_00000.bin" in capsys.readouterr().out


def test_verify_repair_rebuilds_the_manifest(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "manifest.json").unlink()
    assert main(["verify", str(store), "--repair"]) == 0
    out = capsys.readouterr().out
    assert "repaired" in out and "whole" in out


def test_an_error_goes_to_standard_error_with_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and "no layout that tokenreel knows" in captured.err


def test_an_error_is_json_where_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "LayoutError"


def test_wrong_use_exits_with_2(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(store), "--layout", "nonsense"]) == 2
    assert "bad --layout (expected native, " in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_doctor_says_when_numpy_serves() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "tokenreel", "doctor", "--json"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "TOKENREEL_NATIVE": "0"},
    ).stdout
    assert json.loads(output)["kernels"] == "numpy (TOKENREEL_NATIVE=0)"


def test_the_validator_script_is_the_prepare_command(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10, dtype=np.uint16))
    script = Path(__file__).parents[2] / "scripts" / "prepare_data.py"
    output = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], check=True, capture_output=True, text=True
    ).stdout
    assert f"--data.dataset_path={tmp_path}" in output


def test_a_reader_that_closes_the_pipe_is_no_traceback(store: Path) -> None:
    process = subprocess.run(
        f"{sys.executable} -m tokenreel show {store} --json | head -c 1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Traceback" not in process.stderr
