"""check-template against transformers: what is the same, what differs, and where."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.text.chats.jinja_shapes import SPECIAL, plain, train_bpe
from tests.text.chats.test_model_shapes import train

from tokenreel.cli.main import main
from tokenreel.text.chats import BUILT_IN, CHATML, NGPT, Text
from tokenreel.text.chats.conversations import CONVERSATIONS
from tokenreel.text.chats.template_peer import compare, load_peer
from tokenreel.text.tokenizers import load_tokenizer

NAMES = [*CONVERSATIONS, "hostile"]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("bpe"), "gpt2")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tokenizers with the templates of models."""
    root, found = tmp_path_factory.mktemp("models"), {}
    for name in ("qwen2", "qwen3", "gemma"):
        found[name] = root / name
        found[name].mkdir()
        train_bpe(found[name])
        settings = {**SPECIAL, "tokenizer_class": "PreTrainedTokenizerFast"}
        text = json.dumps({**settings, "chat_template": plain(name)})
        (found[name] / "tokenizer_config.json").write_text(text)
    return found


@pytest.mark.parametrize("name", ["chatml", "ngpt"])
def test_a_template_of_toml_is_compared_by_the_jinja_text_that_says_the_same(
    name: str, bpe: Path, bpe_file: Path
) -> None:
    file = bpe if name == "chatml" else bpe_file
    template, tokenizer = BUILT_IN[name], load_tokenizer(file)
    outcomes = {
        one.name: one.outcome
        for one in compare(template, tokenizer, load_peer(template, str(file)))
    }
    assert list(outcomes) == NAMES
    expected = dict.fromkeys(NAMES, "same") | {"tools": "left out", "hostile": "apart"}
    assert outcomes == expected


def test_a_models_own_template_is_compared_with_tools_and_refusals(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-template", "model", "--tokenizer", str(folders["gemma"])]) == 0
    out = capsys.readouterr().out
    assert re.search(r"refused +system +.*System role not supported", out)
    assert re.search(r"same +several turns", out) and "none of 11 conversations differs" in out
    assert main(["check-template", "model", "--tokenizer", str(folders["qwen2"])]) == 0
    assert re.search(r"same +tools", capsys.readouterr().out)


def test_a_difference_is_told_token_by_token_and_fails(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "near.toml"
    file.write_text(
        'end = [{control = "<|im_end|>"}]\n[headers]\n'
        'user = [{control = "<|im_start|>"}, {text = "user\\n"}]\n'
        'assistant = [{control = "<|im_start|>"}, {text = "assistant\\n"}]\n'
    )
    folder = str(folders["qwen2"])
    words = ["check-template", str(file), "--tokenizer", folder, "--against", folder]
    assert main(words) == 1
    out = capsys.readouterr().out
    # The newline behind <|im_end|> is missing.
    assert re.search(r"DIFFERS +one question +from token \d+ on; \d+ tokens", out)
    assert re.search(r"ours .*'<\|im_end\|>' \| \d+ '<\|im_start\|>'", out)
    assert re.search(r"theirs .*'<\|im_end\|>' \| \d+ '\\n'", out)
    assert main([*words, "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert not verdict["ok"] and all(verdict["claims"].values())
    assert {one["outcome"] for one in verdict["compared"]} >= {"differs", "apart"}


@pytest.mark.soak
def test_a_template_that_rewrites_earlier_answers_is_told_with_the_policy_and_is_no_fault(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-template", "model", "--tokenizer", str(folders["qwen3"])]) == 0
    out = capsys.readouterr().out
    assert re.search(r"no +prefix ", out)
    assert "train each answer in a document of its own (--policy each_answer)" in out
    # The chat that is shown trains its last answer.
    assert out.count("⟦") == 2 and "⟦<think>" in out.replace("◆", "")


@pytest.mark.soak
def test_without_a_tokenizer_for_transformers_the_reason_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check-template", "chatml", "--tokenizer", "byte"]) == 0
    out = capsys.readouterr().out
    assert "not compared with transformers: no tokenizer that transformers could load" in out
    assert main(["check-template", "chatml", "--tokenizer", "byte", "--against", "nowhere"]) == 2
    assert "no tokenizer that transformers could load (got 'nowhere')" in capsys.readouterr().err


@pytest.mark.soak
def test_a_folder_without_a_template_is_nothing_to_compare_with(
    bpe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tokenizer", str(bpe), "--against", str(bpe.parent)]
    assert main(["check-template", "chatml", *words]) == 2
    assert "no chat template here to compare with (expected chat_t" in capsys.readouterr().err


def test_every_field_of_a_template_is_in_its_jinja_text(bpe_file: Path) -> None:
    template = replace(
        NGPT,
        headers=CHATML.headers,
        end=CHATML.end,
        ends=(("user", (Text(text="\\ \"'🙂\n"), *CHATML.end)),),
        tail=CHATML.tail,
        preamble=(Text(text="{{ x }}"), *CHATML.end),
        lead=" ",
        strip=True,
    )
    tokenizer = load_tokenizer(bpe_file)
    compared = compare(template, tokenizer, load_peer(template, str(bpe_file)))
    assert {one.outcome for one in compared} == {"same", "left out", "apart"}
