"""The page of a store, of any layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.view.looking import TEXTS, opened

from tokenreel import open_store
from tokenreel.builder.report_files import report_of
from tokenreel.errors import ConfigError


def test_a_store_is_told_with_splits_shards_lengths_and_report(stores: Path) -> None:
    store = open_store(stores / "texts")
    facts = opened(stores / "texts").answer("api/store/0")
    assert facts["fingerprint"] == store.fingerprint
    assert facts["facts"]["tokens"] == store.num_tokens
    (split,) = facts["splits"]
    assert (split["name"], split["documents"]) == ("train", len(TEXTS))
    assert sum(shard["tokens"] for shard in split["shards"]) == store.num_tokens
    assert len(split["shards"]) == len(store["train"].shards) > 1
    assert sum(split["lengths"]["counts"]) == len(TEXTS)
    assert len(split["lengths"]["edges"]) == len(split["lengths"]["counts"]) + 1
    assert split["samples"][0] == 0
    assert split["samples"][-1] == len(TEXTS) - 1
    assert facts["report"] == report_of(store)
    assert facts["tokenizer"]["at_hand"] is True
    assert facts["tokenizer"]["control_ids"]["<|endoftext|>"] == 256


def test_documents_of_a_store_are_shown_by_split(stores: Path) -> None:
    facts = opened(stores / "texts").answer("api/store/0/0/document/5")
    assert "".join(text or "" for text in facts["texts"][:-1]) == TEXTS[5]
    assert (facts["source"], facts["store"], facts["split"]) == (None, 0, "train")


def test_a_flat_file_of_others_has_tokens_but_no_documents(stores: Path) -> None:
    answers = opened(stores / "flat.bin", options={"dtype": "uint16"}, tokenizer="byte")
    facts = answers.answer("api/store/0")
    (split,) = facts["splits"]
    assert (split["documents"], split["samples"], facts["report"]) == (None, [], None)
    shown = answers.answer("api/store/0/0/tokens", [("start", "0"), ("stop", "30")])
    spelled = "".join(text or "" for text in shown["texts"])
    assert spelled == "".join(TEXTS).encode()[:30].decode()
    with pytest.raises(
        ConfigError, match=r"the documents of split 'train' are not known; declare the id"
    ):
        answers.answer("api/store/0/0/document/0")


def test_a_store_without_provenance_or_tokenizer_is_shown_as_ids(stores: Path) -> None:
    answers = opened(stores / "nowhere")
    facts = answers.answer("api/store/0")
    assert facts["tokenizer"] == {
        "name": None,
        "fingerprint": None,
        "vocab_size": 512,
        "control_ids": {},
        "at_hand": False,
    }
    document = answers.answer("api/store/0/0/document/2")
    assert (document["provenance"], set(document["texts"])) == (None, {None})
    assert bytes(document["ids"]).decode() == TEXTS[2]


def test_stores_and_splits_that_are_not_there_are_refused(stores: Path) -> None:
    answers = opened(stores / "texts")
    with pytest.raises(ConfigError, match=r"no such store .expected a number below 1, got 1"):
        answers.answer("api/store/1")
    with pytest.raises(ConfigError, match=r"no such split .expected 0 to 0, got 1"):
        answers.answer("api/store/0/1/document/0")
