"""Special ids and vocabulary sizes: from the tokenizer, unless the model says otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.stream.making import batches_of, config_of, write_texts

from tokenreel.errors import ConfigError, FormatError, InputError
from tokenreel.stream import read_config
from tokenreel.stream.settings import ModelSettings
from tokenreel.stream.vocabulary import Vocabulary, open_vocabulary
from tokenreel.text.tokenizers.train import train_tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "text.txt").write_text("so it goes, and so it went, as it goes. " * 40)
    out = folder / "bpe" / "tokenizer.json"
    out.parent.mkdir()
    specials = ["<|endoftext|>", "<|a|>", "<|b|>", "<|c|>"]
    train_tokenizer([folder / "text.txt"], out, kind="bpe", vocab_size=270, specials=specials)
    return out


def vocabulary_of(
    name: Path | str, model: dict[str, Any] | None = None, **settings: Any
) -> Vocabulary:
    tokenizer = {"kind": "hf", "hf_name_or_path": str(name), **settings}
    data = {"backend": "local_text", "local_text": "a", "tokenizer": tokenizer}
    config = read_config({"data": data, "model": model or {}})
    return open_vocabulary(config.data.tokenizer, config.model)


def test_the_usual_names_are_found_and_the_size_is_rounded_up(trained: Path) -> None:
    vocabulary = vocabulary_of(trained, vocab_size_multiple=256)
    assert vocabulary.size == 512 >= vocabulary.tokenizer.vocab_size
    control = vocabulary.tokenizer.control_ids
    assert vocabulary.eos_id == control["<|endoftext|>"] == vocabulary.pad_id


def test_the_tokenizers_own_files_name_its_tokens(trained: Path, tmp_path: Path) -> None:
    definition = json.loads(trained.read_text())
    control = vocabulary_of(trained).tokenizer.control_ids
    others = sorted(set(control) - {"<|endoftext|>"})
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    naming = {"bos_token": others[0], "eos_token": {"content": others[1]}, "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(naming))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": others[2]}))
    for spec in (tmp_path, tmp_path / "tokenizer.json"):
        found = vocabulary_of(spec)
        assert (found.bos_id, found.eos_id, found.pad_id) == tuple(control[t] for t in others[:3])
    said = vocabulary_of(tmp_path, {"bos_token_id": 5, "eos_token_id": 6, "pad_token_id": 7})
    assert (said.bos_id, said.eos_id, said.pad_id) == (5, 6, 7)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(FormatError, match="no JSON"):
        vocabulary_of(tmp_path)


def test_the_size_is_the_larger_of_model_and_tokenizer_rounded_up(trained: Path) -> None:
    assert vocabulary_of(trained, {"vocab_size": 1000}).size == 1024
    assert vocabulary_of(trained, {"vocab_size": 1000}, vocab_size_multiple=1).size == 1000
    small = vocabulary_of(trained, {"vocab_size": 200}, vocab_size_multiple=1)
    assert small.size == small.tokenizer.vocab_size > 200
    with pytest.raises(ConfigError, match=r"eos_token_id is outside .*expected 0 to 383, got 384"):
        vocabulary_of(trained, {"eos_token_id": 384})


def test_the_opened_configuration_says_what_a_model_is_made_with(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["a document"])
    found = batches_of(config_of(path, model_vocab_size=300, model_pad_token_id=0)).stream
    assert found.config.model == ModelSettings(
        vocab_size=384, bos_token_id=256, eos_token_id=256, pad_token_id=0
    )


def test_a_token_that_does_not_exist_cannot_be_added(trained: Path, tmp_path: Path) -> None:
    definition = json.loads(trained.read_text())
    definition["added_tokens"] = []
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(definition))
    with pytest.raises(ConfigError, match=r"add_bos is asked for, and the tokenizer names no such"):
        vocabulary_of(path, add_bos=True)
    assert vocabulary_of(path).pad_id == 0


def test_a_tokenizer_that_is_nowhere_is_said() -> None:
    with pytest.raises(InputError, match=r"nobody/nothing: no such tokenizer: neither a path, nor"):
        vocabulary_of("nobody/nothing")


def test_a_name_of_the_hub_is_found_in_its_cache(trained: Path, tmp_path: Path) -> None:
    commit = "0" * 40
    kept = tmp_path / "hub/models--owner--name"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs/main").write_text(commit)
    snapshot = kept / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_bytes(trained.read_bytes())
    (snapshot / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<|b|>"}))
    program = (
        "from tokenreel.stream.settings import ModelSettings, TokenizerSettings\n"
        "from tokenreel.stream.vocabulary import open_vocabulary\n"
        "settings = TokenizerSettings(hf_name_or_path='owner/name')\n"
        "found = open_vocabulary(settings, ModelSettings())\n"
        "print(found.tokenizer.fingerprint, found.pad_id)\n"
    )
    # The client reads its settings when it is imported.
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = vocabulary_of(trained).tokenizer
    assert done.stdout.split() == [expected.fingerprint, str(expected.control_ids["<|b|>"])], (
        done.stderr
    )


@pytest.mark.parametrize(("bos", "eos"), [(True, True), (True, False), (False, False)])
def test_begin_and_end_tokens_frame_each_document(
    trained: Path, tmp_path: Path, bos: bool, eos: bool
) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["so it goes", "<|endoftext|> is text", "as it went"])
    tokenizer = {"kind": "hf", "hf_name_or_path": str(trained), "add_bos": bos, "add_eos": eos}
    config = config_of(path, repeat=False, shuffle=False, train_seq_len=100)
    config["data"]["tokenizer"] = tokenizer
    [batch] = batches_of(config)
    encoder = vocabulary_of(trained)
    expected: list[int] = []
    for text in ("so it goes", "<|endoftext|> is text", "as it went"):
        content = encoder.tokenizer.encode_batch([text]).ids.tolist()
        expected += [encoder.eos_id or 0] * bos + content + [encoder.eos_id or 0] * eos
    ids = batch.input_ids[batch.segment_ids > 0]
    assert ids.tolist() == expected
    assert np.count_nonzero(ids == encoder.eos_id) == 3 * (bos + eos)


def test_a_document_that_is_cut_has_no_end_token(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["abcdef", "xy"])
    config = config_of(
        path, repeat=False, shuffle=False, tokenizer_add_bos=True, tokenizer_max_doc_tokens=4
    )
    [batch] = batches_of(config)
    assert batch.input_ids[batch.segment_ids > 0].tolist() == [256, *b"abc", 256, *b"xy", 256]
