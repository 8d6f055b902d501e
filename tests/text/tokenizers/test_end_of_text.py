"""The end of documents is the token that a tokenizer declares, as transformers finds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import AutoTokenizer

from tokenreel import build
from tokenreel.builder.plan import BuildPlan
from tokenreel.errors import ConfigError, FormatError
from tokenreel.text.tokenizers import byte_tokenizer, find_end, load_tokenizer

SPECIALS = ("<|endoftext|>", "</s>", "<turn>")
LISTED = {"1": {"content": "<|endoftext|>"}, "2": {"content": "</s>"}, "3": {"content": "<turn>"}}
Files = dict[str, dict[str, Any]]


def put(folder: Path, files: Files, specials: tuple[str, ...] = SPECIALS) -> Path:
    """Write a tokenizer.json with these control tokens from id 1 on, and files beside it."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a"))
    tokenizer.add_special_tokens(list(specials))
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def config(**settings: Any) -> dict[str, Any]:
    return {"tokenizer_class": "PreTrainedTokenizerFast", **settings}


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({"tokenizer_config": config(eos_token="</s>")}, "tokenizer_config.json"),
        (
            {"tokenizer_config": config(eos_token={"__type": "AddedToken", "content": "<turn>"})},
            "tokenizer_config.json",
        ),
        (
            {"tokenizer_config": config(), "special_tokens_map": {"eos_token": "</s>"}},
            "special_tokens_map.json",
        ),
        (
            {
                "tokenizer_config": config(eos_token="<|endoftext|>"),
                "special_tokens_map": {"eos_token": {"content": "</s>"}},
            },
            "special_tokens_map.json",
        ),
        (
            {
                "tokenizer_config": config(eos_token="</s>", added_tokens_decoder=LISTED),
                "special_tokens_map": {"eos_token": "<|endoftext|>"},
            },
            "tokenizer_config.json",
        ),
    ],
    ids=["config", "config, a mapping", "map", "map before config", "config that lists tokens"],
)
def test_the_declared_end_is_the_eos_token_of_transformers(
    tmp_path: Path, files: Files, source: str
) -> None:
    folder = put(tmp_path, files)
    found = find_end(load_tokenizer(folder))
    theirs = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    assert (found.token, found.id) == (theirs.eos_token, theirs.eos_token_id)
    assert found.source == source
    assert BuildPlan().end_id(load_tokenizer(folder / "tokenizer.json")) == found.id


@pytest.mark.parametrize("ids", [2, [2, 3]])
def test_the_generation_config_counts_where_nothing_else_names_a_token(
    tmp_path: Path, ids: object
) -> None:
    folder = put(tmp_path, {"generation_config": {"eos_token_id": ids}})
    assert find_end(load_tokenizer(folder)).token == "</s>"
    put(tmp_path, {"tokenizer_config": config(eos_token="<turn>")})
    assert find_end(load_tokenizer(folder)).token == "<turn>"


def test_several_usual_spellings_and_no_declaration_are_an_error_that_names_them(
    tmp_path: Path,
) -> None:
    tokenizer = load_tokenizer(put(tmp_path, {}))
    with pytest.raises(ConfigError) as caught:
        BuildPlan().end_id(tokenizer)
    assert str(caught.value) == (
        "the tokenizer declares no end token, and has several that usually are one (expected "
        "eos_token in tokenizer_config.json, got <|endoftext|>, </s>); name its end token "
        "(end_token=…, --end-token; eos_token_id in settings), or append none"
    )
    assert BuildPlan(end_token="</s>").end_id(tokenizer) == 2
    assert BuildPlan(end_token=None).end_id(tokenizer) is None


def test_one_usual_spelling_is_taken_and_the_end_of_a_turn_only_for_want_of_it(
    tmp_path: Path,
) -> None:
    found = find_end(load_tokenizer(put(tmp_path, {}, ("<turn>", "</s>"))))
    assert (found.token, found.id, found.source) == ("</s>", 2, "its usual spelling")
    both, turn = byte_tokenizer(), byte_tokenizer([*list(byte_tokenizer().control_ids)[1:]])
    assert find_end(both).id == 256 and find_end(both).source == "byte"
    assert find_end(turn).token == list(turn.control_ids)[-1]


def test_a_declared_end_that_is_no_control_token_is_an_error(tmp_path: Path) -> None:
    folder = put(tmp_path, {"tokenizer_config": config(eos_token="<end>")})
    with pytest.raises(ConfigError, match=r"no such end token \(expected <end>, got </s>, <turn>"):
        find_end(load_tokenizer(folder))
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(FormatError, match=r"tokenizer_config\.json: no JSON"):
        load_tokenizer(folder)


def test_a_sentencepiece_model_declares_its_own(folder: Path) -> None:
    found = find_end(load_tokenizer(folder / "sp_unigram.model", engine="reference"))
    assert (found.token, found.source) == ("</s>", "the model's eos_id")


def test_a_build_appends_the_declared_end_and_records_it(tmp_path: Path) -> None:
    folder = put(tmp_path / "t", {"tokenizer_config": config(eos_token="</s>")})
    built = build(texts=iter(["a", "a"]), out=tmp_path / "s", tokenizer=folder)
    assert built.store["train"].read(0, 4).tolist() == [0, 2, 0, 2]
    assert built.report["end_token"] == {
        "token": "</s>",
        "id": 2,
        "source": "tokenizer_config.json",
    }
    assert built.store.manifest is not None
    assert built.store.manifest.notes["report"]["end_token"]["id"] == 2
