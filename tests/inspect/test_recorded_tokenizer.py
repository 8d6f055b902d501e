"""The tokenizer of a store is found by what the store records, and never another."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from pathlib import Path

import pytest

import tokenreel
from tokenreel import open_store
from tokenreel.errors import MismatchError
from tokenreel.inspect.recorded_tokenizer import LARGEST_FILE_BYTES, tokenizer_of
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


def store_of(path: Path, name: str, fingerprint: str = "x") -> tokenreel.Store:
    facts = {"name": name, "fingerprint": fingerprint}
    with tokenreel.StoreWriter(path, vocab_size=262, tokenizer=facts) as writer:
        writer.add([1, 2])
    return open_store(path)


@pytest.mark.parametrize("name", ["..", ".", "../model", "model/", "s/../model"])
def test_a_recorded_name_leads_to_no_other_folder(folder: Path, name: str) -> None:
    (folder / "model").mkdir()
    for place in (folder.parent, folder, folder / "model"):
        shutil.copy(folder / "words.json", place / "tokenizer.json")
    fingerprint = tokenreel.load_tokenizer(folder).fingerprint
    assert tokenizer_of(store_of(folder / "a", "model", fingerprint)) is not None
    assert tokenizer_of(store_of(folder / "b", name, fingerprint)) is None


@pytest.mark.parametrize("name", ["n" * 5_000, "n" * 300, "a\0b", "ü" * 200])
def test_a_name_that_no_file_can_have_is_no_crash(tmp_path: Path, name: str) -> None:
    assert tokenizer_of(store_of(tmp_path / "s", name)) is None


@pytest.mark.parametrize("name", ["tok.json", "tok.model", "tok.tiktoken", "tok"])
def test_a_giant_file_is_not_read(tmp_path: Path, name: str) -> None:
    """Nor a giant file of a folder, where `name` has no ending."""
    store, file = store_of(tmp_path / "s", name), tmp_path / name
    if not file.suffix:
        file.mkdir()
        file = file / "tokenizer.json"
    with file.open("wb") as giant:
        giant.truncate(2 * LARGEST_FILE_BYTES)  # of nothing: it takes no room on the disk
    tracemalloc.start()
    assert tokenizer_of(store) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_weights_of_a_model_beside_its_tokenizer_may_have_any_size(folder: Path) -> None:
    model = folder / "model"
    model.mkdir()
    shutil.copy(folder / "words.json", model / "tokenizer.json")
    with (model / "model.safetensors").open("wb") as weights:
        weights.truncate(2 * LARGEST_FILE_BYTES)
    fingerprint = tokenreel.load_tokenizer(model).fingerprint
    assert tokenizer_of(store_of(folder / "a", "model", fingerprint)) is not None


@pytest.mark.parametrize("name", ["tok.json", "tok"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    store, file = store_of(tmp_path / "s", name), tmp_path / name
    if not file.suffix:
        file.mkdir()
        file = file / "tokenizer.json"
    os.mkfifo(file)
    assert tokenizer_of(store) is None


def test_a_file_that_makes_a_parser_give_up_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "tok.json").write_text("[" * 200_000)
    assert tokenizer_of(store_of(tmp_path / "s", "tok.json")) is None


def test_a_given_tokenizer_must_be_that_of_the_store(folder: Path) -> None:
    store = open_store(folder / "s")
    with pytest.raises(MismatchError, match=r"another tokenizer.*insist with force_tokenizer"):
        tokenizer_of(store, "byte")
    forced = tokenizer_of(store, "byte", force=True)
    assert forced is not None
    assert forced.fingerprint != store.tokenizer_fingerprint
