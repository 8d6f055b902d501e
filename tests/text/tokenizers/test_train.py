"""Training: the same bytes from the same text, control tokens first and out of reach."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tokenreel.cli import train_tokenizer_command as command
from tokenreel.errors import ConfigError, EmptyError, ExistsError, InputError
from tokenreel.text.chats import fitting_template, load_template
from tokenreel.text.tokenizers import NGPT_SPECIALS, find_end, load_tokenizer
from tokenreel.text.tokenizers.specials import DEFAULT_SPECIALS
from tokenreel.text.tokenizers.train import SUFFIXES, Kind, train_tokenizer

SPECIALS = list(DEFAULT_SPECIALS)
KINDS: tuple[Kind, ...] = ("bpe", "sentencepiece")


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
        "train_tokenizer([sys.argv[1]], out=sys.argv[2], vocab_size=600)"
    )
    outs = [tmp_path / folder / f"t{SUFFIXES[kind]}" for folder in ("one", "two")]
    for seed, out in enumerate(outs, start=1):
        out.parent.mkdir()
        env = {"PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": str(seed), "PATH": ""}
        words = [sys.executable, "-c", program, str(corpus), str(out)]
        subprocess.run(words, check=True, env=env)
    train_tokenizer([corpus], out=tmp_path / outs[0].name, vocab_size=600)
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert outs[0].read_bytes() == (tmp_path / outs[0].name).read_bytes()
    assert str(tmp_path).encode() not in outs[0].read_bytes()


@pytest.mark.parametrize(("kind", "first"), [("sentencepiece", 1), ("bpe", 0)])
def test_control_tokens_come_first_whatever_text_and_size(
    kind: str, first: int, corpus: Path, tmp_path: Path
) -> None:
    for number, (size, specials) in enumerate([(400, SPECIALS), (500, SPECIALS), (400, ["<x>"])]):
        out = tmp_path / f"{number}{SUFFIXES[kind]}"
        sources = [corpus] * (number + 1)
        train_tokenizer(sources, out=out, vocab_size=size, round_to=1, specials=specials)
        tokenizer = load_tokenizer(out)
        assert tokenizer.vocab_size == size
        assert tokenizer.control_ids == {text: first + n for n, text in enumerate(specials)}


@pytest.mark.parametrize("kind", KINDS)
def test_lines_of_any_length_and_nul_are_learned_from(kind: str, tmp_path: Path) -> None:
    words = " ".join(f"w{number % 300}" for number in range(20_000))
    (tmp_path / "long.txt").write_text(f"{words}\x00{words}")
    out = tmp_path / f"t{SUFFIXES[kind]}"
    train_tokenizer([tmp_path / "long.txt"], out=out, vocab_size=400)
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
    assert report["vocab_size"] == tokenizer.vocab_size == 512
    assert report["text_bytes"] == report["source_bytes"] == corpus.stat().st_size
    assert not report["is_sample"] and report["skipped"]["count"] == 0
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
    train_tokenizer([corpus], out=outs[0], vocab_size=500)
    for source, out in zip(("docs.jsonl", "docs.jsonl.gz", "*.jsonl"), outs[1:], strict=True):
        train_tokenizer([tmp_path / source], out=out, vocab_size=500, text_key="body")
        assert out.read_bytes() == outs[0].read_bytes()


def test_the_command_takes_other_control_tokens(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "t.json")
    special = ("--special", "<|endoftext|>", "--special", "<|user|>")
    words = (str(corpus), "--out", out, "--vocab-size", "400", *special)
    assert command.run(arguments(*words)) == 0
    assert "512 ids" in capsys.readouterr().out
    assert load_tokenizer(out).control_ids == {"<|endoftext|>": 0, "<|user|>": 1}


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("chatml", SPECIALS),
        ("llama3", ["<|endoftext|>", *load_template("llama3").controls]),
        ("ngpt", list(NGPT_SPECIALS.values())),
    ],
)
def test_the_command_makes_the_control_tokens_of_a_template(
    name: str, tokens: list[str], corpus: Path, tmp_path: Path
) -> None:
    out = str(tmp_path / "t.json")
    words = (str(corpus), "--out", out, "--vocab-size", "400", "--template", name, "--quiet")
    assert command.run(arguments(*words)) == 0
    tokenizer = load_tokenizer(out)
    assert tokenizer.control_ids == {text: number for number, text in enumerate(tokens)}
    assert fitting_template(tokenizer).name == name
    assert find_end(tokenizer).token in tokens


def test_by_default_a_tokenizer_fits_the_default_template_and_ends_documents(
    corpus: Path, tmp_path: Path
) -> None:
    for kind in KINDS:
        out = tmp_path / f"t{SUFFIXES[kind]}"
        train_tokenizer(corpus, out=out, vocab_size=400)
        tokenizer = load_tokenizer(out)
        assert list(tokenizer.control_ids) == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        assert fitting_template(tokenizer).name == "chatml"
        assert find_end(tokenizer).token == "<|endoftext|>"


def test_a_finished_tokenizer_is_not_overwritten(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "t.model").write_bytes(b"precious")
    with pytest.raises(ExistsError, match="there is a file of that name"):
        train_tokenizer([corpus], out=tmp_path / "t.model", vocab_size=400)
    assert (tmp_path / "t.model").read_bytes() == b"precious"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", EmptyError, "no text to train on"),
        (b" \n\n", EmptyError, "no text to train on"),
        (
            b"fine\nab\xffcd",
            InputError,
            r"in\.txt: no UTF-8 \(invalid start byte\) at byte 7.*on_bad=.skip",
        ),
        (b"too little", ConfigError, r"text.*(vocab_size or round_to|round_to=1)"),
    ],
)
def test_text_that_cannot_be_used_is_an_error_and_writes_nothing(
    kind: str, content: bytes, error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_bytes(content)
    with pytest.raises(error, match=message):
        train_tokenizer([tmp_path / "in.txt"], out=tmp_path / f"t{SUFFIXES[kind]}")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"out": "t.json", "kind": "sentencepiece"},
            r"t\.json: the name of a sentencepiece .*odel",
        ),
        (
            {"out": "t.json", "kind": "wordpiece"},
            r"bad kind \(expected 'sentencepiece', 'bpe' or None,",
        ),
        ({"out": "t.bin"}, r"t\.bin: the ending .*\.json for byte-level BPE.*got \.bin"),
        ({"vocab_size": 200}, r"bytes and control tokens alone are 260 \(expected more than 260"),
        ({"vocab_size": 0, "round_to": 512}, "expected more than 260, got 0"),
        ({"round_to": 0}, r"bad round_to \(expected >= 1, got 0\)"),
        ({"specials": ["<a>", "<a>"]}, "control tokens must differ"),
        ({"specials": "<a>"}, r"bad specials \(expected a list, each a string, got '<a>'"),
        ({"on_bad": "ignore"}, r"bad on_bad \(expected 'error' or 'skip', got 'ignore'"),
        ({"sample_bytes": 0}, r"bad sample_bytes \(expected more than 0 bytes, .* got 0\)"),
        ({"texts": ["a"]}, r"one kind of input .*got sources and texts"),
        ({"sources": None}, r"one kind of input .*got none"),
        ({"sources": None, "texts": "a"}, "bad texts .*got one string"),
    ],
)
def test_arguments_that_make_no_sense_are_errors(
    settings: dict[str, Any], message: str, corpus: Path, tmp_path: Path
) -> None:
    given = {"sources": [corpus], "out": "t.model", **settings}
    given["out"] = tmp_path / given["out"]
    with pytest.raises(ConfigError, match=message):
        train_tokenizer(**given)
    assert not list(tmp_path.iterdir())


def test_a_source_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.txt: no file matches"):
        train_tokenizer([tmp_path / "gone.txt"], out=tmp_path / "t.model")
    with pytest.raises(InputError, match="no file matches"):
        train_tokenizer(["a text, which is no path " * 50], out=tmp_path / "t.model")


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_vocabulary_is_rounded_up_and_what_is_added_is_learned(
    kind: Kind, corpus: Path, tmp_path: Path
) -> None:
    outs = [tmp_path / f"{n}{SUFFIXES[kind]}" for n in range(2)]
    trained = train_tokenizer(corpus, out=outs[0], vocab_size=400)
    train_tokenizer(corpus, out=outs[1], vocab_size=512, round_to=1)
    assert trained.vocab_size == load_tokenizer(outs[0]).vocab_size == 512
    assert outs[0].read_bytes() == outs[1].read_bytes()  # as if so many had been asked for


@pytest.mark.parametrize(
    ("asked", "round_to", "size"),
    [(512, 128, 512), (513, 128, 640), (400, 1, 400), (401, 100, 500)],
)
def test_a_multiple_stays_and_one_switches_rounding_off(
    asked: int, round_to: int, size: int, tmp_path: Path
) -> None:
    texts, out = [" ".join(f"word{n}" for n in range(2000))], tmp_path / "t.json"
    assert (
        train_tokenizer(texts=texts, out=out, vocab_size=asked, round_to=round_to).vocab_size
        == size
    )
    assert load_tokenizer(out).vocab_size == size


def test_too_little_text_says_how_large_a_vocabulary_it_gives(tmp_path: Path) -> None:
    texts = ["so it goes and so it went, " * 9 + " ".join(f"w{n}" for n in range(150))]
    with pytest.raises(ConfigError, match=r"expected 16,000, got .*: \d+ ids at") as caught:
        train_tokenizer(texts=texts, out=tmp_path / "t.json")
    possible = int(str(caught.value.remedy).split(": ")[1].split(" ")[0])
    trained = train_tokenizer(texts=texts, out=tmp_path / "t.json", vocab_size=possible)
    assert trained.vocab_size == possible and possible % 128 == 0
    with pytest.raises(ConfigError, match="round_to=1"):
        train_tokenizer(texts=["so it goes " * 9], out=tmp_path / "u.json", vocab_size=262)


def test_folders_above_the_file_are_made(corpus: Path, tmp_path: Path) -> None:
    train_tokenizer(corpus, out=tmp_path / "a/b/t.json", vocab_size=300)
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["t.json"]


def test_texts_and_chats_in_memory_teach_what_files_of_them_would(
    corpus: Path, tmp_path: Path
) -> None:
    documents = corpus.read_text().split("\n\n")
    chats = [
        {"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]}
        for a, b in zip(documents[::2], documents[1::2], strict=False)
    ]
    pairs = [text for chat in chats for text in (m["content"] for m in chat["messages"])]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    outs = [tmp_path / f"{number}.json" for number in range(4)]
    train_tokenizer(texts=pairs, out=outs[0], vocab_size=500)
    train_tokenizer(texts=iter(pairs), out=outs[1], vocab_size=500)
    train_tokenizer(chats=chats, out=outs[2], vocab_size=500)
    train_tokenizer(tmp_path / "chats.jsonl", out=outs[3], chat=True, vocab_size=500)
    assert len({out.read_bytes() for out in outs}) == 1


def test_the_command_counts_what_it_skips_and_says_what_it_read(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "d.jsonl"
    rows = [json.dumps({"text": text}) for text in corpus.read_text().split("\n\n")]
    source.write_text("\n".join([*rows, "{broken", *rows]) + "\n")
    words = (str(source), "--out", str(tmp_path / "t.json"), "--vocab-size", "500", "--quiet")
    with pytest.raises(InputError, match=rf"d\.jsonl:{len(rows) + 1}: "):
        command.run(arguments(*words))
    assert command.run(arguments(*words, "--on-bad", "skip", "--sample-bytes", "20K")) == 0
    out = capsys.readouterr().out
    assert "512 ids" in out and "(500 rounded up to a multiple of 128)" in out
    assert re.search(r"learned from 19\.\d KiB of text, a sample of 24\d\.\d KiB of files", out)
    (tmp_path / "t.json").unlink()
    assert command.run(arguments(*words, "--on-bad", "skip", "--sample-bytes", "all")) == 0
    out = capsys.readouterr().out
    assert "of text, all there is" in out and "skipped 1: " in out


def test_reading_and_training_are_shown_on_a_terminal(corpus: Path, tmp_path: Path) -> None:
    words = ["train-tokenizer", str(corpus), "--out", str(tmp_path / "t.model")]
    code, shown = on_terminal([*words, "--vocab-size", "500"])
    assert code == 0
    places = [shown.find(task) for task in ("reading", "counting words", "learning merges")]
    assert -1 not in places and places == sorted(places)
    assert "learned from" in shown[places[-1] :]


def on_terminal(words: list[str]) -> tuple[int, str]:
    """Run a command in a process whose terminal is a pty; return its exit code and the screen."""
    screen, terminal = pty.openpty()
    command_line = [sys.executable, "-m", "tokenreel", *words]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command_line, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while data := os.read(screen, 65536):
                shown += data
        except OSError:  # Linux: the other side is closed
            pass
    os.close(screen)
    return process.returncode, shown.decode(errors="replace")


class Interrupting:
    """Progress that sends Ctrl-C when the library begins to count words."""

    def __init__(self) -> None:
        self.tasks: list[str] = []

    def start(self, task: str, *, total: int | None, unit: str = "") -> None:
        self.tasks.append(task)
        if task == "counting words":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)  # what a library computes without a look at signals

    def advance(self, amount: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_ends_the_training_while_words_are_counted(kind: Kind, tmp_path: Path) -> None:
    progress = Interrupting()
    texts = [f"word{number} and word{number + 1}" for number in range(3000)]
    with pytest.raises(KeyboardInterrupt):
        out = tmp_path / f"t{SUFFIXES[kind]}"
        train_tokenizer(texts=texts, out=out, vocab_size=300, progress=progress)
    time.sleep(0.3)  # the library would have gone on by then
    assert progress.tasks[-1] == "counting words"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("progress", [True, False])
def test_sizes_are_text_and_progress_is_shown_or_not(
    progress: bool, corpus: Path, tmp_path: Path
) -> None:
    sizes: dict[str, Any] = {"vocab_size": 300, "round_to": 1}
    given = {"sample_bytes": "1.5K", "progress": progress, **sizes}
    trained = train_tokenizer([corpus], out=tmp_path / "a.json", **given)
    same = train_tokenizer([corpus], out=tmp_path / "b.json", sample_bytes=1500, **sizes)
    assert trained.is_sample and trained.text_bytes == same.text_bytes


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"vocabsize": 300}, "has no keyword 'vocabsize'; did you mean 'vocab_size'"),
        ({"vocab_size": "300"}, r"bad vocab_size \(expected a whole number, got '300'\)"),
        ({"sample_bytes": "50Q"}, r"bad sample_bytes \(expected more than 0 bytes"),
    ],
)
def test_wrong_keywords_are_errors_of_ours(
    wrong: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        train_tokenizer(texts=["some text"], out=tmp_path / "t.json", **wrong)
