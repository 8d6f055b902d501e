"""tokenreel stream: a dry run that says what a stream gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.stream.making import texts_of, write_texts

from tokenreel.cli.main import main
from tokenreel.errors import NoInputError
from tokenreel.stream import StreamPipeline


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_texts(tmp_path / "a.jsonl", texts_of(60))
    path = tmp_path / "run.toml"
    path.write_text(
        '[data]\nbackend = "local_text"\nlocal_files = "a.jsonl"\npacking_mode = "bin"\n'
        '[data.tokenizer]\nkind = "byte"\nadd_eos = true\n[train]\nseq_len = 32\nbatch_size = 4\n'
    )
    return path


def test_a_dry_run_tells_the_account(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", str(config), "--steps", "5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["steps"] == 5 and told["shape"] == [1, 4, 32] and told["rows"] == 20
    assert told["retries"] == 0 and 0 < told["utilisation"] <= 1
    assert told["state_bytes"] < 4096 and told["vocab_size"] == 384
    assert told["epoch"] == 2  # a block of 128 documents goes through a corpus of 60 twice
    assert main(["stream", str(config), "--steps", "5", "--quiet"]) == 0
    drawn = capsys.readouterr().out
    assert "5 batches [1, 4, 32] in " in drawn and "retries 0" in drawn and "documents" in drawn
    assert "vocabulary 384 (bos 259, eos 256, pad 260)" in drawn and "skipped" not in drawn


def test_settings_are_overridden_and_a_finite_stream_ends(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["stream", str(config), "--json", "--set", "data.repeat=false", "--steps", "1000"]
    assert main([*words, "--set", "train.seq_len=64"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["steps"] < 1000 and told["shape"] == [1, 4, 64]
    assert told["documents"] == 60 and told["pending"] == 0


def test_errors_have_their_exit_codes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", str(config), "--set", "data.sed=1"]) == 2
    assert "unknown key 'data.sed'; did you mean 'seed'?" in capsys.readouterr().err
    assert main(["stream", str(config), "--set", "train.seq_length=8"]) == 2
    assert "did you mean 'train.seq_len'?" in capsys.readouterr().err
    assert main(["stream", str(config), "--steps", "0"]) == 2
    assert "bad number of steps" in capsys.readouterr().err
    assert main(["stream", str(config), "--split", "eval"]) == 2
    assert "training data is never used for it" in capsys.readouterr().err
    config.with_name("a.jsonl").write_text("no json\n")
    assert main(["stream", str(config)]) == 1
    assert "a.jsonl:1: broken JSON" in capsys.readouterr().err


def test_remedies_name_what_a_stream_takes(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = config.with_name("a.jsonl")
    for line, wanted in [
        ("no json\n", 'repair the line, or set data.on_bad = "skip" to count it and go on'),
        (
            '{"body": "x"}\n',
            'with data.text_key, or set data.on_bad = "skip" to count it and go on',
        ),
    ]:
        broken.write_text(line)
        assert main(["stream", str(config), "--json"]) == 1
        captured = capsys.readouterr()
        assert captured.err.endswith(f"{wanted}\n")
        assert json.loads(captured.out)["remedy"].endswith(wanted)
    broken.unlink()
    with pytest.raises(NoInputError) as caught:
        StreamPipeline(config)
    assert str(caught.value).endswith("check the path; a text itself is given as data.local_text")
