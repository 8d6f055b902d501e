"""Special ids and vocabulary sizes: from the tokenizer, unless the model says otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.stream.making import batches_of, config_of, write_texts

from tokenreel.errors import ConfigError, FormatError, InputError, NoInputError
from tokenreel.stream import read_config
from tokenreel.stream.model_vocabulary import Vocabulary, open_vocabulary
from tokenreel.stream.stream_settings import ModelSettings
from tokenreel.text.tokenizers.train import train_tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    specials = ["<|endoftext|>", "<|a|>", "<|b|>", "<|c|>"]
    return trained_with(specials, tmp_path_factory.mktemp("tokenizer"))


def trained_with(specials: list[str], folder: Path) -> Path:
    """Return the tokenizer.json of a small vocabulary that has these control tokens."""
    (folder / "text.txt").write_text("so it goes, and so it went, as it goes. " * 40)
    out = folder / "bpe" / "tokenizer.json"
    out.parent.mkdir()
    size = 270 + len(specials)
    train_tokenizer([folder / "text.txt"], out=out, vocab_size=size, round_to=1, specials=specials)
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
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(FormatError, match="no JSON"):
        vocabulary_of(tmp_path)


def test_the_size_is_the_larger_of_model_and_tokenizer_rounded_up(trained: Path) -> None:
    assert vocabulary_of(trained, {"vocab_size": 1000}).size == 1024
    assert vocabulary_of(trained, {"vocab_size": 1000}, vocab_size_multiple=1).size == 1000
    small = vocabulary_of(trained, {"vocab_size": 200}, vocab_size_multiple=1)
    assert small.size == small.tokenizer.vocab_size > 200
    with pytest.raises(ConfigError, match=r"eos_token_id is outside .*expected 0 to 383, got 384"):
        vocabulary_of(trained, {"eos_token_id": 384}, auto_set_special_tokens=False)


def test_the_opened_configuration_says_what_a_model_is_made_with(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["a document"])
    found = batches_of(config_of(path, model_vocab_size=300)).stream
    assert found.config.model == ModelSettings(
        vocab_size=384, bos_token_id=259, eos_token_id=256, pad_token_id=260
    )


def test_a_token_that_does_not_exist_cannot_be_added(trained: Path, tmp_path: Path) -> None:
    definition = json.loads(trained.read_text())
    definition["added_tokens"] = []
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(definition))
    with pytest.raises(ConfigError, match=r"add_bos is asked for, and the tokenizer names no such"):
        vocabulary_of(path, add_bos=True)
    with pytest.raises(
        ConfigError, match=r"add_eos is asked for, and the tokenizer has no such end"
    ):
        vocabulary_of(path, add_eos=True)
    assert vocabulary_of(path, {"eos_token_id": 5}, add_eos=True).eos_id == 5
    assert vocabulary_of(path).pad_id == 0


def test_a_tokenizer_that_is_nowhere_is_said() -> None:
    with pytest.raises(InputError, match=r"nobody/nothing: no such tokenizer: neither a path, nor"):
        vocabulary_of("nobody/nothing")


@pytest.mark.parametrize("name", ["./nope/x.json", "nope/x.json", "/nope/x", "a/b/c", "x.model"])
def test_a_path_that_is_not_there_is_a_file_not_found_and_no_name_of_the_hub(name: str) -> None:
    with pytest.raises(NoInputError, match=r": no such tokenizer \(expected a file") as caught:
        vocabulary_of(name)
    assert isinstance(caught.value, FileNotFoundError)


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
        "from tokenreel.stream.stream_settings import ModelSettings, TokenizerSettings\n"
        "from tokenreel.stream.model_vocabulary import open_vocabulary\n"
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
    end = vocabulary_of(trained).eos_id
    config = config_of(path, repeat=False, shuffle=False, train_seq_len=100, model_bos_token_id=end)
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
    assert batch.input_ids[batch.segment_ids > 0].tolist() == [259, *b"abc", 259, *b"xy", 256]


def test_the_tokenizers_special_ids_win_over_the_models_and_it_is_logged(
    trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Contract 004: "optionally updates `model.{bos,eos,pad}_token_id` from tokenizer metadata"."""
    model = {"bos_token_id": 5, "eos_token_id": 6, "pad_token_id": 7}
    (tmp_path / "tokenizer.json").write_bytes(trained.read_bytes())
    naming = {"bos_token": "<|a|>", "eos_token": "<|b|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(naming))
    found = vocabulary_of(tmp_path, model)
    control = found.tokenizer.control_ids
    begin, end = control["<|a|>"], control["<|b|>"]
    assert (found.bos_id, found.eos_id) == (begin, end)
    assert found.pad_id == 7  # the tokenizer has none
    assert f"model.bos_token_id is {begin}, as the tokenizer declares, and not 5" in caplog.text
    assert f"model.eos_token_id is {end}, as the tokenizer declares, and not 6" in caplog.text
    assert "pad_token_id" not in caplog.text
    caplog.clear()
    said = vocabulary_of(tmp_path, model, auto_set_special_tokens=False)
    assert (said.bos_id, said.eos_id, said.pad_id) == (5, 6, 7)
    assert vocabulary_of(tmp_path, {"eos_token_id": end}).eos_id == end
    assert caplog.text == ""


def test_what_the_model_says_wins_over_a_spelling_that_nothing_declares(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Contract 004: "from tokenizer metadata": how a token is spelled is none."""
    specials = ["<s>", "</s>", "<pad>", "<|begin|>", "<|end|>", "<|fill|>"]
    path = trained_with(specials, tmp_path)
    control = vocabulary_of(path).tokenizer.control_ids
    own = {"bos": "<|begin|>", "eos": "<|end|>", "pad": "<|fill|>"}
    model = {f"{role}_token_id": control[token] for role, token in own.items()}
    caplog.set_level("INFO", logger="tokenreel")
    for auto in (True, False):
        caplog.clear()
        found = vocabulary_of(path, model, add_bos=True, add_eos=True, auto_set_special_tokens=auto)
        assert {**model, "vocab_size": found.size} == asdict(found.as_settings())
        assert "spelling" not in caplog.text and "token_id" not in caplog.text
    spelled = vocabulary_of(path)
    usual = tuple(control[token] for token in specials[:3])
    assert (spelled.bos_id, spelled.eos_id, spelled.pad_id) == usual
    assert f"model.bos_token_id is {usual[0]}, by the usual spelling <s>" in caplog.text
    assert "declares no end token; by its usual spelling it is </s>" in caplog.text
    assert f"model.pad_token_id is {usual[2]}, by the usual spelling <pad>" in caplog.text
    assert "as the tokenizer declares" not in caplog.text


def test_an_end_token_is_not_taken_for_a_begin_token(trained: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"add_bos is asked for, .*<bos>, got .*endoftext.*; say which with model"
    ):
        vocabulary_of(trained, add_bos=True)
    found = vocabulary_of(trained)
    assert found.bos_id is None and found.eos_id == found.tokenizer.control_ids["<|endoftext|>"]
    assert vocabulary_of(trained, {"bos_token_id": 9}, add_bos=True).bos_id == 9


@pytest.mark.parametrize("offset", [0, 3])
def test_the_special_ids_of_bytes_are_declared_ones(
    offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="tokenreel")
    model = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0} if not offset else {}
    found = vocabulary_of("none", model, kind="byte", byte_offset=offset)
    expected = (1, 2, 0) if offset else (259, 256, 260)
    assert (found.bos_id, found.eos_id, found.pad_id) == expected
    assert "spelling" not in caplog.text
    assert caplog.text.count("as the tokenizer declares") == (0 if offset else 3)


def test_bytes_have_begin_end_and_padding_of_their_own(tmp_path: Path) -> None:
    """Contract 004: "mask labels that equal `model.eos_token_id`", and no others."""
    path = write_texts(tmp_path / "a.jsonl", ["ab", "cd", "ef"])
    config = config_of(
        path,
        repeat=False,
        shuffle=False,
        mask_boundary_loss=False,
        train_on_eos=False,
        tokenizer_add_bos=True,
        train_grad_accum=1,
        train_batch_size=1,
    )
    [batch] = batches_of(config)
    assert batch.labels[0, 0].tolist()[:12] == [
        *(97, 98, -100, 259, 99, 100, -100, 259, 101, 102, -100),
        -100,  # what comes after is padding
    ]
    assert set(batch.input_ids[~batch.attention_mask].tolist()) == {260}


def test_an_end_token_that_is_a_byte_cannot_be_left_out_of_the_loss(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["ab"])
    settings = {
        "model_bos_token_id": 257,
        "model_eos_token_id": 2,
        "tokenizer_auto_set_special_tokens": False,
        "tokenizer_add_bos": True,
    }
    assert batches_of(config_of(path, **settings)).stream.vocabulary.eos_id == 2
    for eos, actual in ((2, "2, which is a byte as well"), (257, "257, which is the begin token")):
        config = config_of(path, train_on_eos=False, **{**settings, "model_eos_token_id": eos})
        with pytest.raises(ConfigError, match=rf"would ignore more than end tokens .*got {actual}"):
            batches_of(config)


def test_bytes_begin_at_their_offset_and_special_tokens_stand_below(tmp_path: Path) -> None:
    """The original's `data.tokenizer.byte_offset`: ids 0 to byte_offset - 1 are for specials."""
    path = write_texts(tmp_path / "a.jsonl", ["ab", "ß"])
    settings = {"repeat": False, "shuffle": False, "tokenizer_add_bos": True}
    [batch] = batches_of(config_of(path, tokenizer_byte_offset=4, **settings))
    shown = batch.input_ids[batch.attention_mask].tolist()
    assert shown == [1, 101, 102, 2, 1, *(4 + byte for byte in "ß".encode()), 2]
    assert set(batch.input_ids[~batch.attention_mask].tolist()) == {0}
    config = config_of(path, tokenizer_byte_offset=4, **settings)
    config["model"] = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
    stream = batches_of(config).stream
    assert (stream.vocabulary.bos_id, stream.vocabulary.eos_id) == (2, 3)
    assert stream.vocabulary.tokenizer.vocab_size == 260
    others = (config_of(path, **settings), config_of(path, tokenizer_byte_offset=5, **settings))
    prints = {batches_of(other).stream.fingerprint for other in (config, *others)}
    assert len(prints) == 3
    for offset, model in ((2, {}), (4, {"eos_token_id": 4}), (4, {"eos_token_id": 1})):
        config = {**config_of(path, tokenizer_byte_offset=offset), "model": model}
        with pytest.raises(
            ConfigError, match=r"no room below .*byte_offset \(expected .*apart, 0 to"
        ):
            batches_of(config)


def test_of_two_end_tokens_that_nothing_declares_none_is_guessed(
    trained: Path, tmp_path: Path
) -> None:
    definition = json.loads(trained.read_text())
    for token in definition["added_tokens"]:
        token["content"] = token["content"].replace("<|a|>", "</s>")
    vocab = definition["model"]["vocab"]
    if "<|a|>" in vocab:
        vocab["</s>"] = vocab.pop("<|a|>")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(definition))
    assert vocabulary_of(path).eos_id is None
    with pytest.raises(
        ConfigError, match=r"add_eos is asked for.*got <\|endoftext\|>, </s>\); say"
    ):
        vocabulary_of(path, add_eos=True)
    ends = vocabulary_of(path).tokenizer.control_ids
    assert vocabulary_of(path, {"eos_token_id": ends["</s>"]}, add_eos=True).eos_id == ends["</s>"]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends["</s>"]}))
    assert vocabulary_of(path, add_eos=True).eos_id == ends["</s>"]
