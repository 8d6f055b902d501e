"""The tokenizer of a store is found by what the store records, and never another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tokenreel
from tokenreel import open_store
from tokenreel.errors import MismatchError
from tokenreel.inspect.recorded_tokenizer import tokenizer_of
from tokenreel.text.tokenizers.train import train_bpe

TEXT = "so it goes, and so it went " * 50


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store, and the tokenizer that it was built with beside it."""
    folder = tmp_path / "run"
    folder.mkdir()
    data = train_bpe([TEXT], vocab_size=262, specials=["<|endoftext|>"])
    (folder / "words.json").write_bytes(data)
    tokenreel.build(texts=[TEXT], out=folder / "s", tokenizer=folder / "words.json", progress=False)
    return folder


def test_the_recorded_tokenizer_is_found_beside_its_store(folder: Path) -> None:
    store = open_store(folder / "s")
    found = tokenizer_of(store)
    assert found is not None
    assert found.fingerprint == store.tokenizer_fingerprint
    assert found.decode(store.document(0).tokens[:-1]) == TEXT


def test_it_is_found_in_the_store_and_in_the_current_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "elsewhere"
    shutil.move(folder / "words.json", tmp_path / "words.json")
    shutil.copytree(folder / "s", moved / "s")
    assert tokenizer_of(open_store(moved / "s")) is None
    monkeypatch.chdir(tmp_path)
    assert tokenizer_of(open_store(moved / "s")) is not None
    monkeypatch.chdir(folder)
    shutil.copy(tmp_path / "words.json", moved / "s" / "words.json")
    assert tokenizer_of(open_store(moved / "s")) is not None


def test_another_file_of_its_name_is_not_taken(folder: Path) -> None:
    other = train_bpe([TEXT[::-1]], vocab_size=261, specials=["<|endoftext|>"])
    (folder / "words.json").write_bytes(other)
    assert tokenizer_of(open_store(folder / "s")) is None
    (folder / "words.json").write_text("no tokenizer")
    assert tokenizer_of(open_store(folder / "s")) is None


def test_a_recorded_name_is_a_name_and_no_path(tmp_path: Path) -> None:
    secret = tmp_path / "words.json"
    secret.write_bytes(train_bpe([TEXT], vocab_size=262, specials=["<|endoftext|>"]))
    fingerprint = tokenreel.load_tokenizer(str(secret)).fingerprint
    path = tmp_path / "deep" / "er" / "s"
    facts = {"name": str(secret), "fingerprint": fingerprint}
    with tokenreel.StoreWriter(path, vocab_size=262, tokenizer=facts) as writer:
        writer.add([1, 2])
    assert tokenizer_of(open_store(path)) is None


def test_a_given_tokenizer_must_be_that_of_the_store(folder: Path) -> None:
    store = open_store(folder / "s")
    with pytest.raises(MismatchError, match=r"another tokenizer.*insist with force_tokenizer"):
        tokenizer_of(store, "byte")
    forced = tokenizer_of(store, "byte", force=True)
    assert forced is not None
    assert forced.fingerprint != store.tokenizer_fingerprint
