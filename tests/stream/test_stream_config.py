"""Configurations: from mappings and files, every wrong key and value named."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.stream.making import config_of, texts_of, write_texts

from tokenreel.config.overrides import override
from tokenreel.errors import ConfigError
from tokenreel.stream import StreamConfig, StreamPipeline, read_config

BYTE = {"kind": "byte"}


def test_every_key_and_default_stands_in_the_table() -> None:
    told = dict(
        re.findall(
            r"^    ((?:data|train|model|stream)\.\S+) +(\S+)  *\S", str(StreamConfig.__doc__), re.M
        )
    )
    made = read_config({"data": {"backend": "local_text", "local_text": "a", "tokenizer": BYTE}})
    given = {"data.backend": "hf", "data.local_text": None, "data.tokenizer.kind": "hf"}
    assert told == {key: str(value).lower() for key, value in {**_flat(made), **given}.items()}


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for item in fields(settings):
        value, name = getattr(settings, item.name), prefix + item.name
        flat |= _flat(value, name + ".") if is_dataclass(value) else {name: value}
    return flat


def test_a_file_a_mapping_and_an_object_mean_the_same(tmp_path: Path) -> None:
    write_texts(tmp_path / "a.jsonl", texts_of(20))
    (tmp_path / "run.yaml").write_text(
        "data:\n  backend: local_text\n  local_files: a.jsonl\n  seed: 3\n"
        "  tokenizer: {kind: byte}\ntrain: {seq_len: 16, batch_size: 2}\n"
    )
    (tmp_path / "run.toml").write_text(
        '[data]\nbackend = "local_text"\nlocal_files = ["a.jsonl"]\nseed = 1\n'
        '[data.tokenizer]\nkind = "byte"\n[train]\nseq_len = 16\nbatch_size = 2\n'
    )
    mapping = {
        "data": {
            "backend": "local_text",
            "local_files": str(tmp_path / "a.jsonl"),
            "seed": 3,
            "tokenizer": BYTE,
        },
        "train": {"seq_len": 16, "batch_size": 2},
    }
    made = read_config(mapping)
    assert isinstance(made, StreamConfig) and read_config(made) is made
    prints = {
        StreamPipeline(mapping).fingerprint,
        StreamPipeline(made).fingerprint,
        StreamPipeline(tmp_path / "run.yaml").fingerprint,
        StreamPipeline(tmp_path / "run.toml", overrides=["data.seed=3"]).fingerprint,
    }
    assert len(prints) == 1
    assert StreamPipeline(tmp_path / "run.toml").fingerprint not in prints


def test_paths_in_a_file_count_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "run.toml").write_text(
        '[data]\nhf_dataset = "tokenizer"\n[data.tokenizer]\nhf_name_or_path = "tokenizer"\n'
        '[stream]\ncache_to = "cache"\n'
    )
    made = read_config(tmp_path / "run.toml")
    assert (
        made.data.hf_dataset == made.data.tokenizer.hf_name_or_path == str(tmp_path / "tokenizer")
    )
    assert made.stream.cache_to == str(tmp_path / "cache")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"packing_mod": "bin"}, "unknown key 'data.packing_mod'; did you mean 'packing_mode'?"),
        ({"seq_len": 8}, "unknown key 'data.seq_len'; did you mean 'train.seq_len'?"),
        ({"add_eos": True}, "unknown key 'data.add_eos'; did you mean 'data.tokenizer.add_eos'?"),
        (
            {"packing_mode": "best"},
            "bad data.packing_mode (expected 'sequential' or 'bin', got 'best')",
        ),
        ({"end": "keep"}, "bad data.end (expected 'pad' or 'drop', got 'keep')"),
        ({"backend": "s3"}, "bad data.backend (expected 'hf' or 'local_text', got 's3')"),
        ({"on_bad": "warn"}, "bad data.on_bad (expected 'error' or 'skip', got 'warn')"),
        ({"seed": "3"}, "bad data.seed"),
        ({"shuffle_buffer_size": 0}, "bad data.shuffle_buffer_size (expected >= 1, got 0)"),
        ({"max_retries": -1}, "bad data.max_retries (expected >= 0, got -1)"),
        ({"grain_prefetch": -1}, "bad data.grain_prefetch (expected >= 0, got -1)"),
        ({"train_seq_len": 0}, "bad train.seq_len (expected >= 1, got 0)"),
        (
            {"tokenizer_max_doc_tokens": 0},
            "bad data.tokenizer.max_doc_tokens (expected >= 1, got 0)",
        ),
        (
            {"tokenizer_hf_use_fast": False},
            "data.tokenizer.hf_use_fast = false is not offered (expected the ids of tokenizer.json",
        ),
        (
            {"tokenizer_hf_trust_remote_code": True},
            "save it as a tokenizer.json and give that as hf_name_or_path",
        ),
        (
            {"tokenizer_byte_offset": -1},
            "bad data.tokenizer.byte_offset (expected >= 0, got -1)",
        ),
        ({"tokenizer_engine": "fast"}, "bad data.tokenizer.engine (expected 'auto' or 'reference'"),
        (
            {"eval_fraction": 1.0},
            "bad data.eval_fraction (expected 0 <= eval_fraction < 1, got 1.0)",
        ),
        ({"num_lanes": 3}, "the lanes do not divide the batch"),
        ({"num_lanes": 2, "stream_cache_to": "x"}, "a store is written in one order, by one lane"),
        ({"local_text": "a"}, "expected either data.local_text or data.local_files"),
        ({"backend": "hf"}, "data.hf_dataset is missing"),
        ({"tokenizer_kind": "hf"}, "data.tokenizer.hf_name_or_path is missing"),
        ({"hf_eval_split": "train"}, "the evaluation split is the training split"),
        ({"hf_eval_split": "test"}, "data.hf_eval_split has no place here"),
    ],
)
def test_what_makes_no_sense_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(config_of(Path("a.jsonl"), **settings))
    assert message in str(caught.value)


FULL = """
model: {backend: megalodon, d_model: 64, unk_token_id: 5, vocab_size: 512, eos_token_id: 2}
data:
  backend: local_text
  local_text: so it goes
  tokenizer: {kind: byte, add_eos: true}
train: {seq_len: 16, batch_size: 2, max_seq_len: 99, steps: 1000, seed: 3, eval_every: 100}
optim: {lr: 0.001, batch_size: 1}
checkpoint:
run_name: first
"""


def test_a_trainers_own_settings_may_stand_beside_the_streams(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(FULL)
    (tmp_path / "bare.yaml").write_text(
        "data: {backend: local_text, local_text: so it goes, "
        "tokenizer: {kind: byte, add_eos: true}}\n"
        "model: {vocab_size: 512, eos_token_id: 2}\ntrain: {seq_len: 16, batch_size: 2}\n"
    )
    overrides = ["optim.lr=1", "train.steps=2", "data.seed=7"]
    full = read_config(tmp_path / "run.yaml", overrides=overrides)
    assert full == read_config(tmp_path / "bare.yaml", overrides=["data.seed=7"])
    assert full == read_config(read_config(tmp_path / "bare.yaml"), overrides=["data.seed=7"])
    assert next(StreamPipeline(full)).labels.shape == (1, 2, 16)


@pytest.mark.parametrize(
    ("setting", "key", "near"),
    [
        ("train.seq_length=8", "train.seq_length", "train.seq_len"),
        ("train.seqlen=8", "train.seqlen", "train.seq_len"),
        ("train.batchsize=8", "train.batchsize", "train.batch_size"),
        ("train.grad_accum_steps=8", "train.grad_accum_steps", "train.grad_accum"),
        ("model.pad_tokenid=8", "model.pad_tokenid", "model.pad_token_id"),
        ("trian.seq_len=8", "trian", "train"),
        ("training.seq_len=8", "training", "train"),
        ("streaming.cache_to=x", "streaming", "stream"),
        ("seq_len=8", "seq_len", "train.seq_len"),
        ("seed=8", "seed", "data.seed"),
        ("cache_to=x", "cache_to", "stream.cache_to"),
    ],
)
def test_no_setting_is_passed_over_because_of_its_spelling(
    setting: str, key: str, near: str
) -> None:
    content = {"data": {"backend": "local_text", "local_text": "a", "tokenizer": BYTE}}
    given = {**content, "train": {"seq_len": 4, "batch_size": 2, "grad_accum": 1}}
    for config, overrides in (
        (content, [setting]),
        (given, [setting]),  # who overrides means it now
        (override(content, [setting]), []),
    ):
        with pytest.raises(ConfigError) as caught:
            read_config(config, overrides=overrides)
        assert str(caught.value) == (
            f"unknown key {key!r}; did you mean {near!r}? "
            f"if it is meant for others, give {near!r} as well"
        )


def test_without_data_there_is_no_stream() -> None:
    for content in ({}, {"data": None}, {"train": {"seq_len": 8}}):
        with pytest.raises(ConfigError, match="'data' is missing"):
            read_config(content)


def test_paths_are_settings_like_text(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", texts_of(20))
    config = config_of(path, local_files=[path], stream_cache_to=tmp_path / "cache")
    assert read_config(config).data.local_files == [str(path)]
    assert read_config(config).stream.cache_to == str(tmp_path / "cache")


def test_the_keys_of_the_original_are_known() -> None:
    """Contract 004: "`data.tokenizer.*`", and what else a configuration of the original holds."""
    config = config_of(
        Path("a.jsonl"),
        device_put=False,
        tokenizer_byte_offset=0,
        tokenizer_auto_set_special_tokens=True,
        tokenizer_hf_use_fast=True,
        tokenizer_hf_trust_remote_code=False,
    )
    assert read_config(config) == read_config(config_of(Path("a.jsonl")))


@pytest.mark.parametrize("written", ["train.global_batch_size", "global_batch_size"])
def test_a_recipes_name_for_the_batch_is_refused_with_the_streams_own(written: str) -> None:
    content = {"data": {"backend": "local_text", "local_text": "a", "tokenizer": BYTE}}
    for config, overrides in (
        (content, [f"{written}=8"]),
        (override(content, [f"{written}=8"]), []),
    ):
        with pytest.raises(ConfigError) as caught:
            read_config(config, overrides=overrides)
        assert str(caught.value).startswith(
            f"'{written}' is a key of recipes; a stream takes train.batch_size, the rows of a "
            "microbatch, and train.grad_accum"
        )
    both = {"train": {"batch_size": 4, "global_batch_size": 64}}  # then it is the trainer's
    assert read_config({**content, **both}).train.batch_size == 4
