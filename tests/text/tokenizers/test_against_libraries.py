"""Ids equal those of the libraries called directly, for text without control strings."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tiktoken
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel.text.tokenizers import load_tokenizer
from tokenreel.text.tokenizers.tiktoken import read_ranks
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer

Open = Callable[[str], ReferencedTokenizer]
Direct = Callable[[str], list[int]]
quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
words = st.sampled_from(["covid19x", "    ", "self", " return", "\n\n", "don't", "e\u0301", "日本"])
texts = st.lists(st.one_of(words, st.text(max_size=10)), max_size=8).map("".join)

HUGGINGFACE = ("bpe", "bpe_split", "bpe_words", "bpe_sentencepiece_style", "unigram", "wordpiece")
SENTENCEPIECE = ("sp_trained", "sp_user_defined", "sp_unigram", "sp_word")


def direct(kind: str, folder: Path) -> Direct:
    if kind == "tiktoken":
        facts = json.loads((folder / "tiktoken.json").read_text())
        path = folder / "tiktoken.tiktoken"
        ranks = read_ranks(path.read_bytes(), path)
        encoding = tiktoken.Encoding("direct", mergeable_ranks=ranks, **facts)
        return encoding.encode_ordinary
    if kind in SENTENCEPIECE:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{kind}.model"))
        return processor.encode
    library = tokenizers.Tokenizer.from_file(str(folder / f"{kind}.json"))
    return lambda text: library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", [*HUGGINGFACE, *SENTENCEPIECE, "tiktoken"])
@quick
@given(text=texts)
def test_ids_equal_those_of_the_library(
    kind: str, text: str, open_kind: Open, folder: Path
) -> None:
    tokenizer = open_kind(kind)
    if any(control in text for control in tokenizer.control_ids):
        return
    expected = direct(kind, folder)(text)
    assert tokenizer.encode_batch([text]).ids.tolist() == expected
    assert tokenizer.encode_by_reference([text]).ids.tolist() == expected


@pytest.mark.parametrize("kind", [*HUGGINGFACE, *SENTENCEPIECE, "tiktoken"])
def test_whole_sources_equal_those_of_the_library(kind: str, open_kind: Open, folder: Path) -> None:
    text = Path(random.__file__).read_text()
    expected = np.array(direct(kind, folder)(text))
    assert np.array_equal(open_kind(kind).encode_batch([text]).ids, expected)


def test_control_strings_are_encoded_unlike_the_library_does(open_kind: Open, folder: Path) -> None:
    library = tokenizers.Tokenizer.from_file(str(folder / "bpe.json"))
    tokenizer = open_kind("bpe")
    for control, number in tokenizer.control_ids.items():
        assert library.encode(control, add_special_tokens=False).ids == [number]
        assert number not in tokenizer.encode_batch([control]).ids


def test_a_folder_that_transformers_converts_gives_the_ids_of_transformers(
    folder: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    model = json.loads((folder / "bpe.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = AutoTokenizer.from_pretrained(str(tmp_path))
    ours = load_tokenizer(tmp_path)
    text = Path(random.__file__).read_text()[:20_000]
    assert ours.encode_batch([text]).ids.tolist() == theirs(text)["input_ids"]
    assert "<|endoftext|>" in ours.control_ids
    assert ours.control_ids["<|endoftext|>"] not in ours.encode_batch(["<|endoftext|>"]).ids
    before = ours.fingerprint
    (tmp_path / "merges.txt").write_text(f"#version: 0.3\n{merges}\n")
    assert load_tokenizer(tmp_path).fingerprint != before


def test_ids_are_the_same_in_another_process_and_with_one_thread(folder: Path) -> None:
    program = (
        "import sys, random, hashlib, pathlib\n"
        "from tokenreel.text.tokenizers import load_tokenizer\n"
        "text = pathlib.Path(random.__file__).read_text()\n"
        "for path in sys.argv[1:]:\n"
        "    ids = load_tokenizer(path).encode_batch([text] * 3).ids\n"
        "    print(hashlib.sha256(ids.tobytes()).hexdigest())\n"
    )
    paths = [str(folder / name) for name in ("bpe.json", "sp_trained.model", "unigram.json")]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, *paths],
            capture_output=True,
            text=True,
            check=True,
            env={"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads, "PATH": ""},
        ).stdout
        for threads in ("1", "2")
    }
    assert len(outputs) == 1
