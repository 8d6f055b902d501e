"""What a command advises exists: flags of that command, folders to choose, ids that are shown."""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path

import numpy as np
import pytest

from tokenreel import StoreWriter
from tokenreel.cli.main import main
from tokenreel.cli.output import report_signal
from tokenreel.cli.signals import is_kept
from tokenreel.cli.spoken import FlagFormatter, in_flags
from tokenreel.store.open_options import FOREIGN_DTYPES


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Return a folder of tokens that says nothing of itself."""
    (tmp_path / "flat").mkdir()
    np.arange(8, dtype="<u2").tofile(tmp_path / "flat" / "train.bin")
    return tmp_path / "flat"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreWriter(tmp_path / "store", vocab_size=3000, tokenizer={"kind": "mine"}) as writer:
        writer.add([104, 105, 2000, 33] * 5)
    return tmp_path / "store"


def test_a_conversion_that_is_there_names_what_convert_can_do(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["convert", str(store), str(tmp_path / "out"), "--quiet"]
    assert main(words) == 0
    assert main([*words, "--json"]) == 1
    captured = capsys.readouterr()
    remedy = "choose another folder, or remove this one"
    assert json.loads(captured.out)["remedy"] == remedy
    assert captured.err.endswith(f"never changed; {remedy}\n")


@pytest.mark.parametrize("words", [["show"], ["verify"], ["convert", "--to", "native"]])
def test_log_lines_of_a_command_name_its_flags(
    flat: Path, words: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = [str(tmp_path / "out")] if words[0] == "convert" else []
    assert main([words[0], str(flat), *target, *words[1:]]) == 0
    flags = {"--dtype", "--eos-id"}
    lines = [FlagFormatter("%(message)s", flags).format(record) for record in caplog.records]
    told = " ".join(lines)
    assert "Declare it (--dtype …) to be sure" in told and "dtype=" not in told
    assert ("give --eos-id to find them" in told) == (words[0] == "convert")


@pytest.mark.parametrize("command", ["show", "verify"])
def test_show_and_verify_take_the_declarations_of_open_store(
    flat: Path, command: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    declared = ["--dtype", "uint8", "--vocab-size", "256", "--eos-id", "0", "--json"]
    assert main([command, str(flat), *declared]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 16  # of one byte each
    assert "dtype" not in caplog.text
    assert main([command, str(flat), "--dtype", "uint7"]) == 2
    assert f"(expected {', '.join(FOREIGN_DTYPES)}, got 'uint7')" in capsys.readouterr().err


def test_what_verify_finds_is_said_in_flags(
    flat: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["verify", str(flat), "--vocab-size", "4"]) == 1
    assert "declare the right dtype or the right --vocab-size" in capsys.readouterr().out


def test_an_error_in_json_names_flags_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("some text")
    words = ["build", str(tmp_path / "in.txt"), "--out", str(tmp_path / "s"), "--workers", "1"]
    assert main([*words, "--tokenizer", "byte", "--quiet"]) == 0
    capsys.readouterr()
    assert main([*words, "--tokenizer", "byte", "--seed", "1", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["remedy"] == "choose another folder, or pass --replace"


def test_a_forced_tokenizer_shows_the_ids_that_it_lacks(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forced = ["--tokenizer", "byte", "--force-tokenizer"]
    assert main(["show", str(store), *forced]) == 0
    assert "hi⟨2000⟩!hi⟨2000⟩!" in capsys.readouterr().out
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'seq_len = 8\nglobal_batch_size = 1\nseed = 7\n[[sources]]\nname = "s"\npath = "{store}"\n'
    )
    assert main(["explain", str(recipe), "0", *forced, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert "⟨2000⟩" in row["segments"][0]["text"]


def test_only_what_was_kept_is_said_to_be_kept(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    build = argparse.Namespace(command="build", out=str(out))
    assert not is_kept(argparse.Namespace(command="train-tokenizer", out=str(store)))
    assert not is_kept(build)
    assert not is_kept(argparse.Namespace(command="convert", target=str(store)))  # a finished one
    chunks = out / ".build" / "chunks-1"
    chunks.mkdir(parents=True)
    (out / ".build" / "plan.json").write_text("{}")
    assert not is_kept(build)
    (chunks / "0.chunk").write_bytes(b"")
    assert is_kept(build)
    report_signal(signal.SIGINT, is_kept=True)
    report_signal(signal.SIGINT, is_kept=False)
    told = capsys.readouterr().err
    assert told == "interrupted; what was finished is kept\ninterrupted\n"


def test_a_path_that_looks_like_a_keyword_stays_a_path() -> None:
    assert in_flags("/data/eos_id: give eos_id", {"--eos-id"}) == "/data/eos_id: give --eos-id"
