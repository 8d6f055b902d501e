"""Training: the same bytes from the same text, control tokens first and out of reach."""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tokenreel.cli import train_tokenizer as command
from tokenreel.errors import ConfigError, EmptyError, ExistsError, InputError
from tokenreel.text.tokenizers import NGPT_SPECIALS, load_tokenizer
from tokenreel.text.tokenizers.train import SUFFIXES, train_tokenizer

SPECIALS = list(NGPT_SPECIALS.values())
KINDS = sorted(SUFFIXES)


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args(words)


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_write_the_same_bytes(kind: str, corpus: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from tokenreel.text.tokenizers.train import train_tokenizer\n"
        "train_tokenizer([sys.argv[1]], sys.argv[2], kind=sys.argv[3], vocab_size=600)"
    )
    outs = [tmp_path / folder / f"t{SUFFIXES[kind]}" for folder in ("one", "two")]
    for seed, out in enumerate(outs, start=1):
        out.parent.mkdir()
        env = {"PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": str(seed), "PATH": ""}
        words = [sys.executable, "-c", program, str(corpus), str(out), kind]
        subprocess.run(words, check=True, env=env)
    train_tokenizer([corpus], tmp_path / outs[0].name, kind=kind, vocab_size=600)
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert outs[0].read_bytes() == (tmp_path / outs[0].name).read_bytes()
    assert str(tmp_path).encode() not in outs[0].read_bytes()


@pytest.mark.parametrize(("kind", "first"), [("sentencepiece", 1), ("bpe", 0)])
def test_control_tokens_come_first_whatever_text_and_size(
    kind: str, first: int, corpus: Path, tmp_path: Path
) -> None:
    for number, (size, specials) in enumerate([(400, SPECIALS), (500, SPECIALS), (400, ["<x>"])]):
        out = tmp_path / f"{number}{SUFFIXES[kind]}"
        train_tokenizer([corpus] * (number + 1), out, kind=kind, vocab_size=size, specials=specials)
        tokenizer = load_tokenizer(out)
        assert tokenizer.vocab_size == size + len(specials)
        assert tokenizer.control_ids == {text: first + n for n, text in enumerate(specials)}


@pytest.mark.parametrize("kind", KINDS)
def test_lines_of_any_length_and_nul_are_learned_from(kind: str, tmp_path: Path) -> None:
    words = " ".join(f"w{number % 300}" for number in range(20_000))
    (tmp_path / "long.txt").write_text(f"{words}\x00{words}")
    out = tmp_path / f"t{SUFFIXES[kind]}"
    train_tokenizer([tmp_path / "long.txt"], out, kind=kind, vocab_size=400)
    tokenizer = load_tokenizer(out)
    assert len(tokenizer.encode_batch([words]).ids) < len(words) * 0.6


def test_the_command_trains_and_reports(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "t.model")
    words = (str(corpus), "--out", out, "--vocab-size", "500", "--json", "--quiet")
    assert command.run(arguments(*words)) == 0
    report = json.loads(capsys.readouterr().out)
    tokenizer = load_tokenizer(out)
    assert report["vocab_size"] == tokenizer.vocab_size == 504
    assert (
        report["control_ids"]
        == dict(tokenizer.control_ids)
        == {text: 1 + n for n, text in enumerate(SPECIALS)}
    )
    assert report["fingerprint"] == tokenizer.fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_records_folders_and_globs_teach_what_their_text_would(
    kind: str, corpus: Path, tmp_path: Path
) -> None:
    lines = corpus.read_text().splitlines(keepends=True)
    documents = ["".join(lines[place : place + 40]) for place in range(0, len(lines), 40)]
    records = "".join(json.dumps({"body": text, "text": "other"}) + "\n" for text in documents)
    (tmp_path / "docs.jsonl").write_text(records)
    (tmp_path / "docs.jsonl.gz").write_bytes(gzip.compress(records.encode()))
    outs = [tmp_path / f"{number}{SUFFIXES[kind]}" for number in range(4)]
    train_tokenizer([corpus], outs[0], kind=kind, vocab_size=500)
    for source, out in zip(("docs.jsonl", "docs.jsonl.gz", "*.jsonl"), outs[1:], strict=True):
        train_tokenizer([tmp_path / source], out, kind=kind, vocab_size=500, text_key="body")
        assert out.read_bytes() == outs[0].read_bytes()


def test_the_command_takes_other_control_tokens(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "t.json")
    special = ("--special", "<|endoftext|>", "--special", "<|user|>")
    words = (str(corpus), "--out", out, "--kind", "bpe", "--vocab-size", "400", *special)
    assert command.run(arguments(*words)) == 0
    assert "402 ids" in capsys.readouterr().out
    assert load_tokenizer(out).control_ids == {"<|endoftext|>": 0, "<|user|>": 1}


def test_a_finished_tokenizer_is_not_overwritten(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "t.model").write_bytes(b"precious")
    with pytest.raises(ExistsError, match="there is a file of that name"):
        train_tokenizer([corpus], tmp_path / "t.model", vocab_size=400)
    assert (tmp_path / "t.model").read_bytes() == b"precious"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", EmptyError, "no text to train on"),
        (b" \n\n", EmptyError, "no text to train on"),
        (b"fine\nab\xffcd", InputError, r"in\.txt: no UTF-8 at byte 7: invalid start byte"),
        (b"too little", ConfigError, r"--vocab-size.*text|text.*--vocab-size"),
    ],
)
def test_text_that_cannot_be_used_is_an_error_and_writes_nothing(
    kind: str, content: bytes, error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_bytes(content)
    with pytest.raises(error, match=message):
        train_tokenizer([tmp_path / "in.txt"], tmp_path / f"t{SUFFIXES[kind]}", kind=kind)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_arguments_that_make_no_sense_are_errors(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"t\.json: the name of a sentencepiece .* in \.model"):
        train_tokenizer([corpus], tmp_path / "t.json")
    with pytest.raises(ConfigError, match="expected sentencepiece or bpe, got wordpiece"):
        train_tokenizer([corpus], tmp_path / "t.json", kind="wordpiece")
    with pytest.raises(ConfigError, match="expected more than 257, got 200"):
        train_tokenizer([corpus], tmp_path / "t.model", vocab_size=200)
    with pytest.raises(ConfigError, match="control tokens must differ"):
        train_tokenizer([corpus], tmp_path / "t.model", specials=["<a>", "<a>"])
    with pytest.raises(InputError, match=r"gone\.txt: no file matches"):
        train_tokenizer([tmp_path / "gone.txt"], tmp_path / "t.model")
