"""tokenreel render: a chat as the model will see it, with what is trained told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.text.chats.test_model_shapes import DOCS, train

from tokenreel import build
from tokenreel.cli.main import main

CHATS = [
    {"prompt": "one", "completion": "first"},
    {
        "messages": [
            {"role": "user", "content": "say <|im_end|> [red]\x1b[31m"},
            {"role": "assistant", "content": "no"},
            {"role": "user", "content": "more"},
            {"role": "assistant", "content": "done"},
        ]
    },
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(train(tmp_path_factory.mktemp("tokenizer"), "gpt2"))


@pytest.fixture
def chats(tmp_path: Path) -> str:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(chat) + "\n" for chat in CHATS))
    return str(path)


def run(*words: str) -> int:
    return main(["render", *words])


def test_trained_tokens_are_in_brackets_and_spelled_control_tokens_have_no_diamond(
    chats: str, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(chats, "--tokenizer", tokenizer, "--template", "chatml", "--row", "2") == 0
    out = capsys.readouterr().out
    assert "chats.jsonl:2 by chatml: " in out and " trained" in out
    assert "◆<|im_start|>user\nsay <|im_end|> [red]\\x1b[31m◆<|im_end|>\n" in out
    assert "◆<|im_start|>assistant\n⟦no◆<|im_end|>⟧\n" in out
    assert "\x1b" not in out


def test_on_a_terminal_trained_tokens_are_coloured_unless_no_color_is_set(
    chats: str,
    tokenizer: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    run(chats, "--tokenizer", tokenizer, "--template", "chatml")
    coloured = capsys.readouterr().out
    assert "\x1b[4;32mfirst\x1b[0m" in coloured and "⟦" not in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    run(chats, "--tokenizer", tokenizer, "--template", "chatml")
    assert "⟦first◆<|im_end|>⟧" in capsys.readouterr().out


def test_json_has_ids_weights_and_pieces_that_make_up_the_chat(
    chats: str, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(chats, "--tokenizer", tokenizer, "--template", "chatml", "--json") == 0
    (document,) = json.loads(capsys.readouterr().out)["documents"]
    pieces = document["pieces"]
    assert [number for piece in pieces for number in piece["ids"]] == document["ids"]
    assert [w > 0 for w in document["weights"]] == [
        piece["trained"] for piece in pieces for _ in piece["ids"]
    ]
    assert "".join(piece["text"] for piece in pieces) == (
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\nfirst<|im_end|>\n"
    )
    assert [piece["text"] for piece in pieces if piece["trained"]] == ["first", "<|im_end|>"]


def test_a_policy_by_answers_shows_a_document_for_each(
    chats: str, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--template", "chatml", "--row", "2", "--policy", "each_answer")
    assert run(chats, "--tokenizer", tokenizer, *words) == 0
    first, second = capsys.readouterr().out.split("document 2 of 2:")
    assert "⟦no◆<|im_end|>⟧" in first and "done" not in first
    assert "no◆<|im_end|>" in second and "⟦done◆<|im_end|>⟧" in second


def test_the_worked_example_of_the_page_is_shown_as_the_page_says(
    tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = DOCS.read_text()
    chat = page.split("```json\n")[1].split("```")[0]
    (tmp_path / "chats.jsonl").write_text(json.dumps(json.loads(chat)))
    toml = page.split("```toml\n# worked.toml\n")[1].split("```")[0]
    (tmp_path / "worked.toml").write_text(toml)
    words = ("--template", str(tmp_path / "worked.toml"), "--row", "1")
    assert run(str(tmp_path / "chats.jsonl"), "--tokenizer", tokenizer, *words) == 0
    shown = next(part for part in page.split("```\n") if part.startswith("◆"))
    assert shown.strip() in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--row", "3"), "no chat in row 3 (expected 1 to 2, got 3)"),
        (("--row", "0"), "bad --row (expected 1 for the first chat, or more, got 0)"),
        (("--template", "chatlm"), "did you mean 'chatml'?"),
        (("--template-arg", "x=1"), "the template 'chatml' takes no arguments"),
    ],
)
def test_wrong_use_is_told_with_what_was_expected(
    chats: str,
    tokenizer: str,
    words: tuple[str, ...],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(chats, "--tokenizer", tokenizer, "--template", "chatml", *words) == 2
    assert told in capsys.readouterr().err


PREFERENCES = [
    {"prompt": "2+2?", "chosen": "4", "rejected": "5", "[red]margin": 0.5},
    {"prompt": "say", "answers": ["good", "best"], "scores": [1, 2]},
    {"prompt": [{"role": "user", "content": "hi"}], "id": 7, "answer": "yo"},
    {"question": "3+4=", "answer": "7"},
]


@pytest.fixture
def preferences(tmp_path: Path) -> str:
    path = tmp_path / "preferences.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in PREFERENCES))
    return str(path)


def test_answers_of_a_group_are_shown_one_by_one_with_their_labels_or_ranks(
    preferences: str, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (preferences, "--tokenizer", tokenizer, "--template", "chatml", "--pairs")
    assert run(*words) == 0
    asked = "◆<|im_start|>user\n2+2?◆<|im_end|>\n◆<|im_start|>assistant\n"
    first, second = capsys.readouterr().out.split("answer, rejected:\n")
    assert first.endswith(f"answer, preferred:\n{asked}⟦4◆<|im_end|>⟧\n\n")
    assert second.startswith(f"{asked}⟦5◆<|im_end|>⟧\n")
    assert "note: the field [red]margin, not kept" in second
    assert run(*words, "--row", "2") == 0
    first, second = capsys.readouterr().out.split("answer, rank 2 of 2:")
    assert "answer, rank 1 of 2:" in first and "⟦best◆" in first and "⟦good◆" in second


def test_a_group_in_json_is_the_document_that_a_build_stores(
    preferences: str, tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--tokenizer", tokenizer, "--template", "chatml", "--pairs")
    assert run(preferences, *words, "--row", "2", "--json") == 0
    (shown,) = json.loads(capsys.readouterr().out)["documents"]
    options: dict[str, Any] = {"tokenizer": tokenizer, "template": "chatml", "progress": False}
    built = build(PREFERENCES[1:2], out=tmp_path / "s", pairs=True, **options)
    stored = built.store["train"].document(0)
    assert shown["ids"] == stored.tokens.tolist()
    assert shown["weights"] == stored.loss_weights.tolist()
    assert stored.turns is not None
    second = int(stored.turns["start"][stored.turns["answer"] == 1][0])
    assert shown["answers"] == [
        {"role_of_answer": "rank 1 of 2", "start": 0, "stop": second},
        {"role_of_answer": "rank 2 of 2", "start": second, "stop": len(stored.tokens)},
    ]
    pieces = [number for piece in shown["pieces"] for number in piece["ids"]]
    assert pieces == shown["ids"]


def test_prompts_are_shown_up_to_the_answer_with_the_rest_of_their_record(
    preferences: str, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (preferences, "--tokenizer", tokenizer, "--prompts")
    assert run(*words, "--row", "3", "--template", "chatml") == 0
    out = capsys.readouterr().out
    assert "◆<|im_start|>user\nhi◆<|im_end|>\n◆<|im_start|>assistant\n" in out
    assert " 0 trained" in out and 'record {"answer":"yo","id":7}' in out
    assert run(*words, "--row", "4", "--text-key", "question") == 0
    assert "jsonl:4 without a template: " in capsys.readouterr().out
    assert run(*words, "--row", "4", "--text-key", "question", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["record"] == {"answer": "7"} and found["template"] is None
    assert "".join(piece["text"] for piece in found["documents"][0]["pieces"]) == "3+4="


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 1, "build records of preferences with --pairs"),
        (("--pairs", "--row", "3"), 1, "build prompts without answers with --prompts"),
        (("--prompts", "--row", "3"), 1, "pass --chat for the one that fits the tokenizer"),
        (("--prompts", "--row", "4"), 1, "name the field that holds the prompt with --text-key"),
        (("--prompts", "--pairs"), 2, "prompts and pairs exclude each other"),
        (("--pairs", "--policy", "each_answer"), 2, "an answer of a pair is one"),
        (("--prompts", "--policy", "all"), 2, "--policy does not apply to prompts"),
    ],
)
def test_records_of_another_kind_are_refused_in_flags(
    preferences: str,
    words: tuple[str, ...],
    code: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(preferences, "--tokenizer", "byte", *words) == code
    said = capsys.readouterr().err
    assert told in said and "=True" not in said
