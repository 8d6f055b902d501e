"""What is dropped, deduplicated, shuffled, split and cut, against plain Python (property 22)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builder.making import chats, documents, write_jsonl
from tests.builder.oracle import assembled

from tokenreel.builder import assemble
from tokenreel.builder.build import build
from tokenreel.errors import EmptyError
from tokenreel.text.sources import InMemory
from tokenreel.text.tokenizers import byte_tokenizer, load_tokenizer

END_ID = next(
    number
    for token, number in load_tokenizer("byte").control_ids.items()
    if token == "<|endoftext|>" or "eot" in token
)
# Thousands of fsyncs cost nothing in memory.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
TEXTS = st.lists(st.text(alphabet="ab é\n", max_size=12), min_size=1, max_size=30)
SPLITS: list[dict[str, Any]] = [{}, {"val_frac": 0.3}, {"val_tokens": 7}, {"val_tokens": 40}]
SHUFFLES: list[dict[str, Any]] = [
    {},
    {"shuffle": "global"},
    *({"shuffle": "buffer", "shuffle_buffer": size} for size in (1, 4, 99)),
]


@st.composite
def choices_of_a_build(draw: st.DrawFn) -> dict[str, Any]:
    chosen = draw(
        st.fixed_dictionaries(
            {
                "seed": st.integers(0, 3),
                "min_tokens": st.integers(1, 4),
                "deduplicate": st.booleans(),
            },
            optional={"train_tokens": st.integers(1, 80), "end_token": st.none()},
        )
    )
    splits, shuffle = draw(st.sampled_from(SPLITS)), draw(st.sampled_from(SHUFFLES))
    return {**chosen, **splits, **shuffle}


CHOICES = choices_of_a_build()


def built(texts: Any, **choices: Any) -> tuple[dict[str, list[list[int]]], dict[str, Any]]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        result = build(InMemory(texts), out=Path(folder) / "s", tokenizer="byte", **choices)
        splits = {
            name: [document.tokens.tolist() for document in split.documents()]
            for name, split in result.store.splits.items()
        }
    return splits, result.report


@settings(max_examples=50, deadline=None)
@given(texts=TEXTS, choices=CHOICES)
def test_the_store_and_the_ledger_are_those_of_plain_python(
    texts: list[str], choices: dict[str, Any]
) -> None:
    end_id = None if "end_token" in choices else END_ID
    # A budget that is full ends the reading, and with it the choice of validation by chance.
    if "val_frac" in choices:
        choices.pop("train_tokens", None)
    expected = assembled(texts, end_id=end_id, **choices)
    if not any(expected["splits"].values()):
        with np.testing.assert_raises(EmptyError):
            built(texts, **choices)
        return
    splits, report = built(texts, **choices)
    assert splits == expected["splits"]
    ledger = report["ledger"]
    assert ledger["truncated"] == expected["truncated"]
    assert ledger["total"] == expected["total"]
    found = {reason: counts["tokens"] for reason, counts in report["dropped"].items()}
    assert {**dict.fromkeys(expected["dropped"], 0), **found} == expected["dropped"]


@settings(max_examples=40, deadline=None)
@given(choices=CHOICES, chunk_bytes=st.sampled_from([1, 50, 400, 10**6]), chat=st.booleans())
def test_the_ledger_adds_up_and_budgets_hold_for_every_division(
    choices: dict[str, Any], chunk_bytes: int, chat: bool
) -> None:
    rows = (chats if chat else documents)(25)
    if chat:
        choices["train_tokens"] = choices.get("train_tokens", 10) * 40
    try:
        source = [row["messages"] for row in rows] if chat else [row["text"] for row in rows]
        splits, report = built(source, chat=chat, chunk_bytes=chunk_bytes, **choices)
    except EmptyError:
        return
    ledger = report["ledger"]
    parts = [ledger[name] for name in ("trained", "masked", "truncated", "dropped")]
    assert sum(parts) == ledger["total"] and min(parts) >= 0
    counted = sum(split["documents"] for split in report["splits"].values())
    assert counted + sum(d["documents"] for d in report["dropped"].values()) == report["documents"]
    for split, budget in (("train", "train_tokens"), ("val", "val_tokens")):
        tokens = sum(map(len, splits.get(split, [])))
        assert tokens <= choices.get(budget, tokens)
        assert tokens == report["splits"].get(split, {"tokens": 0})["tokens"]
    if chat:
        assert ledger["truncated"] == 0 and ledger["masked"] > 0


def test_no_document_is_in_two_splits_and_the_first_of_equal_ones_stays(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(200))
    result = build([source], out=tmp_path / "s", tokenizer="byte", val_frac=0.5, deduplicate=True)
    rows = [row for split in result.store.splits.values() for row in split.documents()]
    numbers = [int(row.provenance.row or 0) for row in rows if row.provenance is not None]
    texts = [row["text"] for row in documents(200)]
    assert len(set(numbers)) == len(numbers) == len({text for text in texts if text})
    assert all(texts.index(texts[number]) == number for number in numbers)


def test_provenance_survives_every_shuffle_to_the_byte(tmp_path: Path) -> None:
    rows = documents(120)
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(4):
        write_jsonl(folder / f"part{part}.jsonl", rows[part * 30 : part * 30 + 30])
    for shuffle in ("none", "buffer", "global"):
        out = tmp_path / shuffle
        result = build(
            [folder], out=out, tokenizer="byte", shuffle=shuffle, shuffle_buffer=7, chunk_bytes=500
        )
        encode = byte_tokenizer().encode_batch
        for document in result.store["train"].documents():
            origin = document.provenance
            assert origin is not None and origin.file is not None and origin.row is not None
            row = rows[int(origin.file[4]) * 30 + origin.row]
            assert document.tokens[:-1].tolist() == encode([row["text"]]).ids.tolist()
            assert origin.id == row.get("id")


def spoken(size: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": "x" * size}]


@pytest.mark.parametrize("chunk_bytes", [1, 60, 10**6])
@pytest.mark.parametrize("split", ["train", "val"])
def test_the_first_chat_that_does_not_fit_ends_the_budget_however_the_chats_are_divided(
    split: str, chunk_bytes: int
) -> None:
    source = [spoken(size) for size in (4, 40, 3, 2)]
    wholes, _ = built(source, chat=True)
    small, large, *later = map(len, wholes["train"])
    for budget in (small + sum(later), small + large - 1):
        splits, report = built(
            source, chat=True, chunk_bytes=chunk_bytes, **{f"{split}_tokens": budget}
        )
        assert splits[split] == wholes["train"][:1]
        if split == "val":
            assert splits["train"] == wholes["train"][1:]
        else:
            assert report["dropped"]["over budget"]["documents"] >= 1
    splits, _ = built(
        source, chat=True, chunk_bytes=chunk_bytes, **{f"{split}_tokens": small + large}
    )
    assert splits[split] == wholes["train"][:2]


@pytest.mark.parametrize("at_once", [1, 3, 50])
@pytest.mark.parametrize("choices", [{}, {"train_tokens": 150}, {"val_tokens": 40}])
@pytest.mark.parametrize("chat", [False, True])
def test_a_global_shuffle_is_the_same_however_many_documents_are_picked_at_once(
    at_once: int, choices: dict[str, int], chat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = [row["messages"] for row in chats(20)] if chat else [f"text {n}" for n in range(50)]
    budgets = {name: tokens * (10 if chat else 1) for name, tokens in choices.items()}
    settings: dict[str, Any] = {"chat": chat, "shuffle": "global", "chunk_bytes": 60, **budgets}
    expected, report = built(source, **settings)
    monkeypatch.setattr(assemble, "GLOBAL_BATCH", at_once)
    splits, again = built(source, **settings)
    assert splits == expected
    for part in ("ledger", "dropped", "splits"):
        assert again[part] == report[part]
