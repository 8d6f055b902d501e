"""A chat that cannot be used is an error; with on_bad="skip" it is counted, with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builder.making import chats, tree, write_jsonl

from tokenreel.builder.build import build
from tokenreel.cli.main import main
from tokenreel.errors import EmptyError, InputError
from tokenreel.text.sources import InMemory, open_source
from tokenreel.text.tokenizers import NGPT_SPECIALS, byte_tokenizer

GOOD = {"role": "user", "content": "hi"}
CALL = {"function": {"name": "look", "arguments": "{}"}}
# What is wrong, the record, and what the error says without skipping.
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "chat: no known role": (
        {"messages": [GOOD, {"role": "bot", "content": "x"}]},
        "message 2, field 'messages[1].role': no known role",
    ),
    "chat: not a string": ({"messages": [{"role": "user"}]}, "not a string"),
    "chat: not valid JSON": (
        {"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}]}]},
        "not valid JSON",
    ),
    "chat: no known shape of chat": ({"words": []}, "no known shape of chat"),
    "chat: a chat without messages": ({"messages": []}, "a chat without messages"),
    # Known only when it is rendered.
    "chat: the template 'ngpt' has no place for tool calls": (
        {"messages": [GOOD, {"role": "assistant", "content": "", "tool_calls": [CALL]}]},
        "has no place for tool calls",
    ),
    "chat: the template 'ngpt' has no such role": (
        {"messages": [GOOD, {"role": "tool", "content": "42"}]},
        "has no such role",
    ),
}
BYTES = byte_tokenizer(tuple(NGPT_SPECIALS.values()))
SMALL: dict[str, Any] = {
    "chat": True,
    "tokenizer": BYTES,
    "template": "ngpt",  # it has no place for tools
    "chunk_bytes": 700,
}
SKIP: dict[str, Any] = {**SMALL, "on_bad": "skip"}


def mixed() -> list[dict[str, Any]]:
    """Good chats with bad ones in between: after every fifth, all kinds twice over."""
    bad = [record for record, _ in BAD.values()] * 2
    good = chats(5 * len(bad))
    return [row for n, record in enumerate(bad) for row in (*good[5 * n : 5 * n + 5], record)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "chats.jsonl", mixed())


@pytest.mark.parametrize("reason", BAD)
def test_without_skipping_it_is_an_error_with_file_and_line(reason: str, tmp_path: Path) -> None:
    record, message = BAD[reason]
    source = write_jsonl(tmp_path / "chats.jsonl", [*chats(3), record])
    with pytest.raises(InputError) as caught:
        build([source], out=tmp_path / "s", **SMALL)
    assert message in str(caught.value)
    assert caught.value.where == "chats.jsonl:4"


def test_skipped_chats_are_counted_by_reason_and_named_by_line(
    source: Path, tmp_path: Path
) -> None:
    built = build([source], out=tmp_path / "s", **SKIP)
    assert built.report["skipped"] == dict.fromkeys(sorted(BAD), 2)
    found = [(place["row"], place["reason"]) for place in built.report["skipped_places"]]
    assert sorted(found) == [(5 + 6 * n, reason) for n, reason in enumerate([*BAD, *BAD])]
    assert {place["file"] for place in built.report["skipped_places"]} == {"chats.jsonl"}
    assert built.report["documents"] == built.store.num_documents == 5 * 2 * len(BAD)
    ledger = built.report["ledger"]
    assert ledger["total"] == sum(ledger[part] for part in ledger if part != "total")


def test_the_chats_that_stay_are_those_of_a_file_without_the_others(
    source: Path, tmp_path: Path
) -> None:
    with_bad = build([source], out=tmp_path / "s", **SKIP).store["train"]
    good = InMemory([row for row in mixed() if row not in [bad for bad, _ in BAD.values()]])
    good.options = type(good.options)(text_key=None)
    without = build(good, out=tmp_path / "t", **SMALL).store["train"]
    assert with_bad.num_documents == without.num_documents == 5 * 2 * len(BAD)
    for number in range(5 * 2 * len(BAD)):
        ours, theirs = with_bad.document(number), without.document(number)
        assert np.array_equal(ours.tokens, theirs.tokens)
        assert ours.turns is not None and theirs.turns is not None
        assert np.array_equal(ours.turns, theirs.turns)


def test_skipping_gives_the_same_bytes_for_any_number_of_workers(
    source: Path, tmp_path: Path
) -> None:
    build([source], out=tmp_path / "one", **SKIP)
    build([source], out=tmp_path / "three", workers=3, **SKIP)
    assert tree(tmp_path / "one") == tree(tmp_path / "three")


def test_a_stream_of_chats_skips_too(tmp_path: Path) -> None:
    built = build(
        chats=(row for row in mixed()),
        out=tmp_path / "s",
        **{**SMALL, "on_bad": "skip"},
    )
    assert built.report["skipped"] == dict.fromkeys(sorted(BAD), 2)


def test_a_file_of_nothing_but_bad_chats_is_empty_and_says_why(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "chats.jsonl", [{"messages": []}] * 3)
    with pytest.raises(EmptyError, match="skipped: chat: a chat without messages 3"):
        build([source], out=tmp_path / "s", **SKIP)


def test_documents_in_place_of_chats_are_never_skipped(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "docs.jsonl", [{"text": "a"}])
    source = open_source(path, on_bad="skip")
    with pytest.raises(InputError, match="the source gives documents, not chats"):
        build(source, out=tmp_path / "s", **SMALL)


def test_a_field_of_nothing_but_text_is_empty_of_chats_and_says_why(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "docs.jsonl", [{"text": "a"}])
    with pytest.raises(EmptyError, match="skipped: 'text' is no chat 1"):
        build([source], out=tmp_path / "s", **{**SKIP, "text_key": "text"})


def test_the_command_skips_when_it_is_told_to(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["build", str(source), "--chat", "--tokenizer", "byte", "--workers", "1", "--json"]
    assert main([*words, "--out", str(tmp_path / "s")]) != 0
    capsys.readouterr()
    assert main([*words, "--out", str(tmp_path / "t"), "--on-bad", "skip"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"]["chat: no known role"] == 2
