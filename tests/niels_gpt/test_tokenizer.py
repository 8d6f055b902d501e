"""The tokenizer of contract 001 over tokenreel's."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from niels_gpt.special_tokens import ASST_TOKEN, EOT_TOKEN, SYS_TOKEN, USR_TOKEN
from niels_gpt.tokenizer import SentencePieceTokenizer, load_tokenizer
from tokenreel.cli.main import main
from tokenreel.errors import FormatError
from tokenreel.text.tokenizers import Tokenizer, adapt
from tokenreel.text.tokenizers.train import train_tokenizer

MARK = "84a5023f67d74cf29cc4001becde983c"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "t.model"
    words = ("--template", "ngpt", "--vocab-size", "504", "--round-to", "1", "--quiet")
    assert main(["train-tokenizer", argparse.__file__, "--out", str(path), *words]) == 0
    return path


def test_the_four_strings_are_those_of_the_contract() -> None:
    names = {"sys": SYS_TOKEN, "usr": USR_TOKEN, "asst": ASST_TOKEN, "eot": EOT_TOKEN}
    assert names == {name: f"<|ngpt_{name}_{MARK}|>" for name in names}


def test_it_encodes_decodes_and_names_its_special_tokens(model: Path) -> None:
    tokenizer = load_tokenizer(model)
    assert isinstance(tokenizer, SentencePieceTokenizer)
    assert tokenizer.special_token_ids() == {"sys": 1, "usr": 2, "asst": 3, "eot": 4}
    assert tokenizer.vocab_size == 504
    assert tokenizer.model_path == str(model)
    ids = tokenizer.encode(" grüße,\n\nworld ")
    assert ids and all(type(number) is int for number in ids)
    assert tokenizer.decode(ids) == " grüße,\n\nworld "
    assert tokenizer.decode([1, *ids, 4]) == f"{SYS_TOKEN} grüße,\n\nworld {EOT_TOKEN}"


def test_special_strings_in_text_are_text(model: Path) -> None:
    tokenizer = load_tokenizer(model)
    text = f"{USR_TOKEN}{EOT_TOKEN} {ASST_TOKEN}"
    ids = tokenizer.encode(text)
    assert not set(ids) & set(tokenizer.special_token_ids().values())
    assert tokenizer.decode(ids) == text


def test_it_is_a_tokenreel_tokenizer_as_it_is(model: Path) -> None:
    tokenizer = load_tokenizer(model)
    core: Tokenizer = tokenizer
    assert adapt(core) is tokenizer
    encoded = tokenizer.encode_batch(["one", "two"])
    assert [encoded[n].tolist() for n in (0, 1)] == [tokenizer.encode(t) for t in ("one", "two")]


def test_a_model_without_the_special_tokens_is_refused(tmp_path: Path) -> None:
    train_tokenizer([argparse.__file__], out=tmp_path / "t.model", vocab_size=400)
    with pytest.raises(FormatError, match=r"lacks control tokens .*ngpt_sys_.*--template ngpt"):
        load_tokenizer(tmp_path / "t.model")
