"""The end of documents is the token that a tokenizer declares, as transformers finds it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import AutoTokenizer

from tokenreel import build
from tokenreel.builder.build_plan import BuildPlan
from tokenreel.errors import ConfigError, FormatError
from tokenreel.text.tokenizers import (
    END_OF_TEXT,
    NGPT_SPECIALS,
    byte_tokenizer,
    find_end,
    load_tokenizer,
)
from tokenreel.text.tokenizers.end_of_text import take_end

SPECIALS = ("<|endoftext|>", "</s>", "<turn>")
LISTED = {"1": {"content": "<|endoftext|>"}, "2": {"content": "</s>"}, "3": {"content": "<turn>"}}
Files = dict[str, Any]


def put(
    folder: Path, files: Files, specials: tuple[str, ...] = SPECIALS, *, words: tuple[str, ...] = ()
) -> Path:
    """Write a tokenizer.json: "a", words and control tokens in order of ids; files beside it."""
    vocab = {word: number for number, word in enumerate(("a", *words))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, "a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
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
        "(end_token=…, eos_token_id in settings), or append none"
    )
    assert BuildPlan(end_token="</s>").end_id(tokenizer) == 2
    assert BuildPlan(end_token=None).end_id(tokenizer) is None


def test_one_usual_spelling_is_taken_and_the_end_of_a_turn_only_for_want_of_it(
    tmp_path: Path,
) -> None:
    found = find_end(load_tokenizer(put(tmp_path, {}, ("<turn>", "</s>"))))
    assert (found.token, found.id, found.source) == ("</s>", 2, "its usual spelling")
    turns = list(NGPT_SPECIALS.values())
    both, turn = byte_tokenizer([*turns, END_OF_TEXT]), byte_tokenizer(turns)
    assert find_end(both).id == 260 and find_end(both).source == "byte"
    assert find_end(turn).token == NGPT_SPECIALS["eot"]


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


def theirs(folder: Path) -> tuple[str, int]:
    loaded = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    return loaded.eos_token, loaded.eos_token_id


def ours(path: Path) -> tuple[str, int]:
    found = find_end(load_tokenizer(path))
    return found.token, found.id


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        find_end(load_tokenizer(path))
    return str(caught.value)


def test_a_declared_end_of_the_vocabulary_alone_is_taken_and_no_text_yields_it(
    tmp_path: Path,
) -> None:
    files = {"tokenizer_config": config(eos_token="<end>")}
    folder = put(tmp_path, files, words=("<end>", "b"))
    assert ours(folder) == theirs(folder) == ("<end>", 1)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.control_ids["<end>"] == 1
    assert tokenizer.encode_batch(["b <end> b"]).ids.tolist() == [2, 0, 2]
    assert tokenizer.decode([2, 1]) == "b<end>"
    assert pickle.loads(pickle.dumps(tokenizer)).control_ids == tokenizer.control_ids


def test_the_fingerprint_changes_only_where_the_declaration_changes_what_text_yields(
    tmp_path: Path,
) -> None:
    plain = load_tokenizer(put(tmp_path / "1", {}, words=("<end>",)))
    files = {"tokenizer_config": config(eos_token="</s>")}
    listed = load_tokenizer(put(tmp_path / "2", files, words=("<end>",)))
    files = {"tokenizer_config": config(eos_token="<end>")}
    hidden = load_tokenizer(put(tmp_path / "3", files, words=("<end>",)))
    assert plain.fingerprint == listed.fingerprint != hidden.fingerprint


def put_bpe(folder: Path, end: str, *, merges: list[str]) -> Path:
    vocab = {token: number for number, token in enumerate(("E", "O", "S", "EO", "EOS", "<0x0A>"))}
    model = {"type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": True}
    definition = {"version": "1.0", "added_tokens": [], "model": model}
    return put(folder, {"tokenizer": definition, "tokenizer_config": config(eos_token=end)})


def test_a_declared_word_is_taken_only_if_no_merges_lead_to_it(tmp_path: Path) -> None:
    folder = put_bpe(tmp_path, "EOS", merges=["E O"])
    assert ours(folder) == theirs(folder) == ("EOS", 4)
    assert load_tokenizer(folder).encode_batch(["EOS"]).ids.tolist() == [3, 2]
    put_bpe(tmp_path, "EOS", merges=["E O", "EO S"])
    assert refusal(folder) == (
        "the end token is declared in tokenizer_config.json, but it is an ordinary token, which "
        "text can spell (expected EOS, got no control tokens); give the end a special token of "
        "its own among the added_tokens of tokenizer.json; or name its end token (end_token=…, "
        "eos_token_id in settings), or append none"
    )
    assert load_tokenizer(folder).encode_batch(["EOS"]).ids.tolist() == [4]


@pytest.mark.parametrize("end", ["E", "<0x0A>"])
def test_a_declared_character_or_byte_is_refused_because_text_needs_it(
    tmp_path: Path, end: str
) -> None:
    assert "which text can spell" in refusal(put_bpe(tmp_path, end, merges=["E O"]))


@pytest.mark.parametrize("end", ["b", "..."])
def test_a_declared_word_of_a_vocabulary_of_words_is_refused(tmp_path: Path, end: str) -> None:
    files = {"special_tokens_map": {"eos_token": end}}
    said = refusal(put(tmp_path, files, words=(end,)))
    assert (
        "the end token is declared in special_tokens_map.json, but it is an ordinary token" in said
    )


def test_a_declared_end_that_stands_for_the_unknown_is_refused(tmp_path: Path) -> None:
    said = refusal(put(tmp_path, {"tokenizer_config": config(eos_token="a")}))
    assert said.startswith(
        "the end token is declared in tokenizer_config.json, but it is the token for unknown"
    )


def test_a_declared_end_that_the_config_alone_lists_is_added_as_transformers_does(
    tmp_path: Path,
) -> None:
    listed = {"5": {"content": "<end>", "special": True}, "4": {"content": "<x>", "special": True}}
    files = {"tokenizer_config": config(eos_token="<end>", added_tokens_decoder=listed)}
    folder = put(tmp_path, files)
    assert ours(folder) == theirs(folder) == ("<end>", 5)
    assert load_tokenizer(folder).vocab_size == 6
    assert load_tokenizer(folder).encode_batch(["<end> <x>"]).ids.tolist() == [0, 0]


def test_an_end_that_only_tokenizer_config_knows_is_refused_by_the_names_of_both_files(
    tmp_path: Path,
) -> None:
    folder = put(tmp_path, {"tokenizer_config": config(eos_token="<end>")})
    assert refusal(folder).startswith(
        "the end token is declared in tokenizer_config.json, but not in tokenizer.json: "
        "the tokenizer has no such end token"
    )
    listed = {"15": {"content": "<end>", "special": True}}
    put(tmp_path, {"tokenizer_config": config(eos_token="<end>", added_tokens_decoder=listed)})
    assert "its id 15 in added_tokens_decoder is not the next" in refusal(folder)


@pytest.mark.parametrize(
    ("ids", "expected"), [([999, 3], ("</s>", 3)), ([1, 2], ("<|endoftext|>", 2))]
)
def test_the_first_known_id_of_the_generation_config_is_taken(
    tmp_path: Path, ids: list[int], expected: tuple[str, int]
) -> None:
    folder = put(tmp_path, {"generation_config": {"eos_token_id": ids}}, words=("b",))
    assert ours(folder) == expected


@pytest.mark.parametrize("ids", [999, [999, 1], 1])
def test_no_spelling_is_tried_where_the_generation_config_declares_unknown_ids(
    tmp_path: Path, ids: object
) -> None:
    files = {"generation_config": {"eos_token_id": ids}}
    said = refusal(put(tmp_path, files, ("</s>",), words=("b",)))
    assert said.startswith(
        "the end token is declared in generation_config.json, but no control token has that id "
        "(expected eos_token_id "
    )


@pytest.mark.parametrize("ids", [[[6]], "x", True, 2.0, {"a": 1}, [2, None]])
def test_ids_that_are_no_integers_are_a_format_error(tmp_path: Path, ids: object) -> None:
    with pytest.raises(FormatError, match=r"generation_config\.json: eos_token_id is no id"):
        load_tokenizer(put(tmp_path, {"generation_config": {"eos_token_id": ids}}))


@pytest.mark.parametrize("ids", [None, []])
def test_no_ids_declare_nothing(tmp_path: Path, ids: object) -> None:
    folder = put(tmp_path, {"generation_config": {"eos_token_id": ids}}, ("</s>",))
    assert find_end(load_tokenizer(folder)).source == "its usual spelling"


def test_declarations_count_beside_a_tokenizer_file_of_any_name(tmp_path: Path) -> None:
    folder = put(tmp_path, {"tokenizer_config": config(eos_token="<turn>")})
    renamed = (folder / "tokenizer.json").rename(folder / "my.json")
    assert ours(renamed) == ("<turn>", 3)
    put(tmp_path, {"tokenizer_config": config(eos_token="<end>")})
    assert "but not in my.json" in refusal(renamed)


@pytest.mark.parametrize("content", [[], "x", None])
@pytest.mark.parametrize("name", ["tokenizer_config", "special_tokens_map", "config"])
def test_settings_that_are_no_mapping_are_a_format_error(
    tmp_path: Path, name: str, content: object
) -> None:
    with pytest.raises(FormatError, match=rf"{name}\.json: settings are no mapping"):
        load_tokenizer(put(tmp_path, {name: content}))


@pytest.mark.parametrize(
    "settings", [{"eos_token": 5}, {"eos_token": "<end>", "added_tokens_decoder": {"x": 1}}]
)
def test_declarations_of_a_wrong_type_are_a_format_error(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    with pytest.raises(FormatError, match=r"tokenizer_config\.json: .* is no "):
        load_tokenizer(put(tmp_path, {"tokenizer_config": settings}))


def test_a_list_of_classes_of_its_own_is_code_that_is_refused(tmp_path: Path) -> None:
    files = {"tokenizer_config": {"auto_map": ["tok.Slow", None]}}
    with pytest.raises(ConfigError, match="code of its own"):
        load_tokenizer(put(tmp_path, files))


def test_of_a_thousand_control_tokens_an_error_about_the_end_names_ten() -> None:
    many = {f"[SPECIAL_{number}]": number for number in range(1000)}
    with pytest.raises(ConfigError, match=r"expected </s>, got .* and 990 more\)") as caught:
        take_end(many, "</s>", source="a test")
    assert len(str(caught.value)) < 500
