"""Tokenizer objects of other libraries give what their files give, and what was added since."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import sentencepiece
import tiktoken
import tokenizers
import transformers

import tokenreel
from tokenreel.errors import ConfigError
from tokenreel.text.tokenizers import find_end, load_tokenizer
from tokenreel.text.tokenizers.hostile import hostile_sample
from tokenreel.text.tokenizers.tiktoken import read_ranks
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer, fingerprint_of

Open = Callable[[str], ReferencedTokenizer]
BACKENDS = ("bpe", "bpe_split", "bpe_words", "bpe_whole_words", "unigram", "wordlevel", "wordpiece")
PROCESSORS = ("sp_trained", "sp_user_defined", "sp_unigram", "sp_word")


def held(kind: str, folder: Path) -> Any:
    """Return the object that a user of the library holds, made from the file of this kind."""
    if kind in PROCESSORS:
        return sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{kind}.model"))
    if kind == "tiktoken":
        facts = json.loads((folder / "tiktoken.json").read_text())
        path = folder / "tiktoken.tiktoken"
        ranks = read_ranks(path.read_bytes(), path)
        return tiktoken.Encoding("mine", mergeable_ranks=ranks, **facts)
    return tokenizers.Tokenizer.from_file(str(folder / f"{kind}.json"))


def load_held(held: Any) -> ReferencedTokenizer:
    loaded = load_tokenizer(held)
    assert isinstance(loaded, ReferencedTokenizer)
    return loaded


def assert_same(ours: ReferencedTokenizer, file: ReferencedTokenizer) -> None:
    assert ours.control_ids == file.control_ids
    assert ours.vocab_size == file.vocab_size
    assert ours.engine == file.engine
    texts = hostile_sample(file.control_ids)
    for encode in ("encode_batch", "encode_by_reference"):
        mine, theirs = getattr(ours, encode)(texts), getattr(file, encode)(texts)
        assert np.array_equal(mine.ids, theirs.ids)
        assert np.array_equal(mine.offsets, theirs.offsets)
        assert not np.isin(mine.ids, list(file.control_ids.values())).any()
    ids = [*file.control_ids.values(), *file.encode("return grüße"), *file.control_ids.values()]
    assert ours.decode(ids) == file.decode(ids)


@pytest.mark.parametrize("kind", [*BACKENDS, *PROCESSORS, "tiktoken"])
def test_an_object_gives_what_its_file_gives(kind: str, folder: Path, open_kind: Open) -> None:
    assert_same(load_held(held(kind, folder)), open_kind(kind))


@pytest.mark.parametrize("kind", [*PROCESSORS, "tiktoken", "bpe", "bpe_words", "wordpiece"])
def test_an_object_has_the_fingerprint_of_its_file(
    kind: str, folder: Path, open_kind: Open
) -> None:
    assert load_held(held(kind, folder)).fingerprint == open_kind(kind).fingerprint


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_backend_has_the_fingerprint_of_the_file_it_saves(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    backend = held(kind, folder)
    backend.save(str(tmp_path / "saved.json"))
    saved = load_tokenizer(tmp_path / "saved.json", engine="reference")
    assert load_tokenizer(backend, engine="reference").fingerprint == saved.fingerprint


def test_a_ready_made_implementation_is_a_backend() -> None:
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(["some text, and some more text"] * 9, vocab_size=280)
    made.add_special_tokens(["<|endoftext|>"])
    loaded = load_held(made)
    assert loaded.encode("some text") == made.encode("some text").ids
    assert find_end(loaded).id == made.token_to_id("<|endoftext|>")


def older(definition: dict[str, Any]) -> str:
    """Write a definition as earlier versions of the library did."""
    model = definition["model"]
    merges = [" ".join(merge) for merge in model["merges"]]
    return json.dumps({**definition, "model": {**model, "merges": merges}}, indent=1)


@pytest.fixture
def saved(folder: Path, tmp_path: Path) -> Path:
    """A folder as people download them: an older tokenizer.json, and its configuration."""
    definition = json.loads((folder / "bpe_split.json").read_text())
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "tokenizer.json").write_text(older(definition))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (saved / "tokenizer_config.json").write_text(json.dumps(config))
    return saved


def test_a_transformers_tokenizer_is_the_folder_it_came_from(saved: Path) -> None:
    auto = transformers.AutoTokenizer.from_pretrained(str(saved))
    ours, file = load_held(auto), load_tokenizer(saved)
    assert isinstance(file, ReferencedTokenizer)
    assert_same(ours, file)
    assert ours.fingerprint == file.fingerprint
    assert find_end(ours).token == find_end(file).token == "</s>"
    text = "return self.don't"
    assert ours.encode(text) == auto.encode(text, add_special_tokens=False)


def test_a_transformers_tokenizer_is_the_download_it_came_from(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "hub" / "models--owner--name"
    shutil.copytree(saved, cached / "snapshots" / "abc")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    auto = transformers.AutoTokenizer.from_pretrained(str(saved))
    auto.name_or_path = "owner/name"
    shutil.rmtree(saved)
    assert load_held(auto).fingerprint == load_tokenizer(cached / "snapshots" / "abc").fingerprint


def test_what_was_added_in_memory_counts_and_no_text_forges_it(saved: Path) -> None:
    auto = transformers.AutoTokenizer.from_pretrained(str(saved))
    auto.add_special_tokens({"eos_token": "<|im_end|>"})
    auto.add_tokens(["covid19y"])
    ours, file = load_held(auto), load_tokenizer(saved)
    assert ours.fingerprint != file.fingerprint
    assert ours.vocab_size == file.vocab_size + 2 == len(auto)
    end = find_end(ours)
    assert (end.token, end.id) == ("<|im_end|>", auto.convert_tokens_to_ids("<|im_end|>"))
    assert ours.encode("covid19y") == [auto.convert_tokens_to_ids("covid19y")]
    assert end.id not in ours.encode("a<|im_end|>b")
    assert ours.decode([*ours.encode("a<|im_end|>b"), end.id]) == "a<|im_end|>b<|im_end|>"


def test_truncation_and_padding_that_a_call_leaves_behind_are_left_out(saved: Path) -> None:
    auto = transformers.AutoTokenizer.from_pretrained(str(saved), pad_token="</s>")
    auto(["a long text"], truncation=True, max_length=2, padding="max_length")
    assert json.loads(auto.backend_tokenizer.to_str())["truncation"]
    ours, file = load_held(auto), load_tokenizer(saved)
    assert ours.encode("return self.don't") == file.encode("return self.don't")
    assert ours.fingerprint == file.fingerprint


Use = Callable[[tokenizers.Tokenizer, Path], Any]


def truncated(backend: tokenizers.Tokenizer, path: Path) -> Any:
    backend.enable_truncation(10)
    return backend


def padded(backend: tokenizers.Tokenizer, path: Path) -> Any:
    backend.enable_padding(pad_id=1, pad_token="</s>", length=20)
    return backend


def fast_of_file(backend: tokenizers.Tokenizer, path: Path) -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token="</s>")


def fast_of_object(backend: tokenizers.Tokenizer, path: Path) -> Any:
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    fast(["a long text"], truncation=True, max_length=2)
    return fast


@pytest.mark.parametrize("use", [truncated, padded, fast_of_file, fast_of_object])
@pytest.mark.parametrize("file", ["as trained", "truncating", "with a post-processor"])
def test_an_object_without_files_has_the_fingerprint_of_its_file_however_it_is_used(
    use: Use, file: str, folder: Path, tmp_path: Path
) -> None:
    backend = held("bpe", folder)
    backend.post_processor = None
    if file == "with a post-processor":
        ends = [("</s>", backend.token_to_id("</s>"))]
        adds = tokenizers.processors.TemplateProcessing("$A </s>", special_tokens=ends)
        backend.post_processor = adds
    if file == "truncating":
        backend.enable_truncation(5)
    path = tmp_path / "tokenizer.json"
    backend.save(str(path))
    before = path.read_bytes()
    used = use(tokenizers.Tokenizer.from_file(str(path)), path)
    held_now: Any = getattr(used, "backend_tokenizer", used)
    saved = held_now.to_str(pretty=True).encode()
    ours, theirs = load_held(used), load_tokenizer(path, engine="reference")
    assert ours.fingerprint == theirs.fingerprint
    assert ours.encode("return self.don't") == theirs.encode("return self.don't")
    assert saved != before or file != "as trained"  # it is the use that changes nothing
    assert pickle.loads(pickle.dumps(ours)).fingerprint == theirs.fingerprint


def test_a_file_without_such_settings_has_the_fingerprint_of_its_bytes(folder: Path) -> None:
    data = (folder / "bpe.json").read_bytes()
    kept = fingerprint_of("huggingface", {"tokenizer.json": data})
    assert load_tokenizer(folder / "bpe.json").fingerprint == kept


def test_another_end_token_in_memory_is_the_end_and_the_ids_stay_those_of_the_files(
    saved: Path,
) -> None:
    auto = transformers.AutoTokenizer.from_pretrained(str(saved))
    auto.eos_token = "<|endoftext|>"
    ours = load_held(auto)
    assert find_end(ours).token == "<|endoftext|>"
    assert ours.fingerprint == load_tokenizer(saved).fingerprint
    assert find_end(pickle.loads(pickle.dumps(ours))).token == "<|endoftext|>"


def test_a_tokenizer_without_files_is_taken_as_it_is(folder: Path) -> None:
    backend = held("bpe", folder)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
    ours = load_held(fast)
    assert ours.encode("self") == fast.encode("self", add_special_tokens=False)


def test_an_extended_encoding_keeps_its_ranks_and_gets_its_control_tokens(folder: Path) -> None:
    base = held("tiktoken", folder)
    extended = tiktoken.Encoding(
        "extended",
        pat_str=base._pat_str,
        mergeable_ranks=base._mergeable_ranks,
        special_tokens={**base._special_tokens, "<|im_start|>": base.max_token_value + 9},
    )
    ours = load_held(extended)
    assert ours.control_ids["<|im_start|>"] == ours.vocab_size - 1 == base.max_token_value + 9
    assert ours.encode("<|im_start|> self") == extended.encode_ordinary("<|im_start|> self")
    assert ours.fingerprint != load_held(base).fingerprint


@pytest.mark.parametrize("kind", ["bpe", "sp_trained", "tiktoken"])
def test_an_object_is_sent_to_workers_whole(kind: str, folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    ours = load_held(held(kind, copied))
    sent = pickle.dumps(ours)
    shutil.rmtree(copied)
    received = pickle.loads(sent)
    assert (received.fingerprint, received.engine) == (ours.fingerprint, ours.engine)
    assert received.encode("</s> grüße") == ours.encode("</s> grüße")


def test_a_store_is_built_with_an_object_by_two_workers(saved: Path, tmp_path: Path) -> None:
    auto = transformers.AutoTokenizer.from_pretrained(str(saved))
    lines = [json.dumps({"text": f"def f{n}(): return </s> {n}"}) for n in range(200)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    built = tokenreel.build(
        tmp_path / "a.jsonl", out=tmp_path / "store", tokenizer=auto, workers=2, val_frac=0
    )
    file = load_tokenizer(saved)
    built.store.check_tokenizer(file.fingerprint, remedy="")
    ends = [len(file.encode(f"def f{n}(): return </s> {n}")) + 1 for n in range(200)]
    assert built.store.num_tokens == sum(ends)


def test_a_slow_tokenizer_is_refused_with_the_way_out() -> None:
    slow = transformers.ByT5Tokenizer()
    with pytest.raises(
        ConfigError, match=r"ByT5Tokenizer is a slow .*use_fast=True\), or give the"
    ):
        load_tokenizer(slow)


def test_a_backend_with_a_step_in_python_is_refused(folder: Path) -> None:
    class Blanks:
        def pre_tokenize(self, text: Any) -> None:
            text.split(lambda _, part: part.split(" ", "removed"))

    backend = held("bpe", folder)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(Blanks())
    with pytest.raises(ConfigError, match=r"neither be saved nor sent .*steps that are written in"):
        load_tokenizer(backend)


def test_a_processor_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="holds no model; load one into it first"):
        load_tokenizer(sentencepiece.SentencePieceProcessor())


@pytest.mark.parametrize("other", [object(), 7, {}, tokenizers.Tokenizer, json])
def test_other_objects_are_refused_with_all_that_is_accepted(other: Any) -> None:
    with pytest.raises(ConfigError, match="is no tokenizer") as caught:
        load_tokenizer(other)
    message = str(caught.value)
    for accepted in (
        "fast transformers tokenizer",
        "tokenizers.Tokenizer",
        "SentencePieceProcessor",
        "tiktoken.Encoding",
        "special_token_ids()",
        "tekken.json",
        ".model.v3",
        ".tiktoken",
    ):
        assert accepted in message
