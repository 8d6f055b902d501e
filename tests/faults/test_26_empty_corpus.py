"""Fault 26: empty corpora and documents: a stated policy, counted; nothing left is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import write_jsonl

from tokenreel.builder.build import build
from tokenreel.builder.build_settings import Shuffle
from tokenreel.errors import EmptyError, InputError
from tokenreel.text.sources import InMemory


@pytest.mark.parametrize(
    ("texts", "choices", "counts"),
    [
        ([], {}, r"0 documents"),
        (["", "", ""], {}, r"3 documents \(too short 3\)"),
        (["ab", "cd"], {"min_tokens": 3}, r"2 documents \(too short 2\)"),
        (["ab", "ab"], {"min_tokens": 3, "deduplicate": True}, r"2 documents \(too short 2\)"),
    ],
)
@pytest.mark.parametrize("shuffle", ["none", "buffer", "global"])
def test_nothing_left_is_an_error_with_the_counts(
    texts: list[str], choices: dict[str, Any], counts: str, shuffle: Shuffle, tmp_path: Path
) -> None:
    with pytest.raises(EmptyError, match=counts):
        build(InMemory(texts), out=tmp_path / "s", tokenizer="byte", shuffle=shuffle, **choices)
    assert not (tmp_path / "s").exists()


def test_an_empty_file_is_an_empty_corpus(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text("\n\n")
    with pytest.raises(EmptyError, match=r"nothing is left of the sources.*0 documents"):
        build([tmp_path / "d.jsonl"], out=tmp_path / "s", tokenizer="byte")


def test_everything_skipped_is_an_error_that_says_why(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", [{"x": 1}] * 3)
    with pytest.raises(EmptyError, match="skipped: missing key 3"):
        build([source], out=tmp_path / "s", tokenizer="byte", on_bad="skip")


def test_chats_that_do_not_fit_the_budget_leave_nothing(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "you"}]
    with pytest.raises(EmptyError, match=r"1 documents \(over budget 1\)"):
        build(chats=[chat], out=tmp_path / "s", tokenizer="byte", train_tokens=5)


def test_empty_documents_are_dropped_and_counted(tmp_path: Path) -> None:
    texts = ["", "a", "", "bcd", "ef"]
    built = build(InMemory(texts), out=tmp_path / "s", tokenizer="byte", min_tokens=2)
    assert built.report["dropped"] == {"too short": {"documents": 3, "tokens": 4}}
    assert built.store.num_documents == 2
    ledger = built.report["ledger"]
    assert ledger["trained"] + ledger["dropped"] == ledger["total"] == 11


def test_objects_are_not_taken_for_empty_documents(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hello"}]
    with pytest.raises(InputError, match=r"gives objects, not documents.*chat=True"):
        build(texts=[chat], out=tmp_path / "s", tokenizer="byte")  # type: ignore[list-item]
    with pytest.raises(InputError, match="gives documents, not chats"):
        build(InMemory(["text"]), out=tmp_path / "t", tokenizer="byte", chat=True)
