"""build(pairs=True): a record of preferences is one document, whatever is done with documents."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builder.making import tree, write_jsonl
from tests.text.chats.jinja_shapes import SPECIAL, plain, train_bpe

from tokenreel import open_store
from tokenreel.builder.build import build
from tokenreel.cli.main import main
from tokenreel.errors import ConfigError, ExistsError, InputError
from tokenreel.inspect.verify import verify_store
from tokenreel.store.split import Document

WORDS = ["sky", "blue", "größer", "<|im_end|>", "42", "why", "never"]


def preferences(count: int, *, seed: int = 3) -> list[dict[str, Any]]:
    """Make records of all shapes; every answer holds the number of its record."""
    chance, records = random.Random(seed), []
    for number in range(count):

        def words(most: int, number: int = number) -> str:
            return f"{number} " + " ".join(chance.choices(WORDS, k=chance.randrange(1, most)))

        asked = {"role": "user", "content": words(9)}
        said = [{"role": "assistant", "content": words(12)} for _ in range(4)]
        shapes: list[dict[str, Any]] = [
            {"prompt": words(9), "chosen": words(12), "rejected": words(6)},
            {"chosen": [asked, said[0]], "rejected": [asked, *said[1:2], asked, said[2]]},
            {"prompt": [asked], "completion": [said[0]], "label": number % 2 == 0},
            {"prompt": words(9), "answers": [words(5) for _ in range(4)]},
        ]
        records.append(shapes[number % len(shapes)])
    return records


RECORDS = preferences(60)
SMALL: dict[str, Any] = {"tokenizer": "byte", "pairs": True, "chunk_bytes": 700, "progress": False}


def answers_of(document: Document) -> list[tuple[list[int], int]]:
    """Return ids and label of each answer, by the turn table alone."""
    assert document.turns is not None
    turns = document.turns
    firsts = [int(np.argmax(turns["answer"] == n)) for n in range(int(turns["answer"].max()) + 1)]
    borders = [*turns["start"][firsts].tolist(), len(document)]
    return [
        (document.tokens[begin:end].tolist(), int(turns["label"][first]))
        for first, begin, end in zip(firsts, borders[:-1], borders[1:], strict=True)
    ]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "pairs.jsonl", RECORDS)


def test_a_record_is_one_document_with_the_answers_of_a_chat_build(
    source: Path, tmp_path: Path
) -> None:
    built = build([source], out=tmp_path / "s", **SMALL)
    documents = list(built.store["train"].documents())
    assert len(documents) == len(RECORDS) and built.store["train"].has_groups
    plain = [record for record in RECORDS if "chosen" in record and "prompt" in record]
    chats = [
        {"prompt": record["prompt"], "completion": record[name]}
        for record in plain
        for name in ("chosen", "rejected")
    ]
    alone = build(chats=chats, out=tmp_path / "chats", tokenizer="byte", progress=False)
    expected = [d.tokens.tolist() for d in alone.store["train"].documents()]
    pairs = [answers_of(documents[n]) for n in range(0, len(RECORDS), 4)]
    assert [ids for pair in pairs for ids, _ in pair] == expected
    assert [[label for _, label in pair] for pair in pairs] == [[1, 2]] * len(plain)
    assert verify_store(tmp_path / "s").ok


def test_only_answers_and_their_end_tokens_are_trained(tmp_path: Path) -> None:
    record = {"prompt": "sky?", "chosen": "blue", "rejected": "red"}
    built = build([record], out=tmp_path / "s", **SMALL)
    document = built.store.document(0)
    trained = document.tokens[document.loss_weights > 0].tolist()
    end = built.tokenizer.control_ids["<|im_end|>"]
    assert trained == [*b"blue", end, *b"red", end]


@pytest.mark.parametrize("shuffle", ["none", "buffer", "global"])
def test_splits_shuffles_and_shards_keep_groups_whole(
    source: Path, tmp_path: Path, shuffle: Any
) -> None:
    plain = build([source], out=tmp_path / "plain", **SMALL)
    mixed = build(
        [source], out=tmp_path / "s", val_frac=0.3, shuffle=shuffle, shard_size=2000, **SMALL
    )
    splits = mixed.store.splits.values()
    assert len(splits) == 2 and len(mixed.store["train"].shards) > 2
    wanted = sorted(answers_of(d) for d in plain.store["train"].documents())
    assert sorted(answers_of(d) for split in splits for d in split.documents()) == wanted
    assert verify_store(tmp_path / "s").ok


def test_many_workers_write_the_bytes_of_one(source: Path, tmp_path: Path) -> None:
    build([source], out=tmp_path / "one", **SMALL)
    build([source], out=tmp_path / "two", workers=2, **SMALL)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_copies_are_dropped_only_if_their_labels_are_the_same_too(tmp_path: Path) -> None:
    one = {"prompt": "a", "completion": "b", "label": True}
    records = [one, {**one, "label": False}, one]
    built = build(records, out=tmp_path / "s", deduplicate=True, **SMALL)
    assert built.store.num_documents == 2
    assert built.report["dropped"]["duplicate"]["documents"] == 1


def test_a_budget_ends_before_the_group_that_does_not_fit(source: Path, tmp_path: Path) -> None:
    built = build([source], out=tmp_path / "s", train_tokens=1000, **SMALL)
    assert built.store.num_tokens <= 1000
    assert verify_store(tmp_path / "s").ok


BAD = {
    "pair: no known shape of preferences": {"messages": []},
    "pair: an empty answer": {"prompt": "a", "chosen": "", "rejected": "b"},
}


def test_bad_records_are_refused_by_line_or_skipped_and_counted(tmp_path: Path) -> None:
    bad = list(BAD.values())
    source = write_jsonl(tmp_path / "pairs.jsonl", [*RECORDS[:3], *bad, RECORDS[3]])
    with pytest.raises(InputError, match=r"pairs\.jsonl:4"):
        build([source], out=tmp_path / "s", **SMALL)
    built = build([source], out=tmp_path / "s", on_bad="skip", **SMALL)
    assert built.report["skipped"] == dict.fromkeys(BAD, 1)
    assert built.store.num_documents == 4


def test_answers_that_are_the_same_are_counted_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = {"prompt": "a", "chosen": "b", "rejected": "b"}
    source = write_jsonl(tmp_path / "pairs.jsonl", [*RECORDS[:3], same, same])
    command = ["build", str(source), "--pairs", "--tokenizer", "byte", "--out"]
    assert main([*command, str(tmp_path / "s")]) == 0
    assert "answers of a group that are the same: in 2 records" in capsys.readouterr().out
    store = open_store(tmp_path / "s")
    assert store.num_documents == 5
    assert main(["show", str(tmp_path / "s"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["groups"] is True


def test_a_store_of_chats_is_not_taken_for_one_of_pairs(tmp_path: Path) -> None:
    records = [{"prompt": "a", "completion": "b", "label": True}]  # which chats read as well
    build(records, out=tmp_path / "s", tokenizer="byte", chat=True, progress=False)
    with pytest.raises(ExistsError, match="pairs"):
        build(records, out=tmp_path / "s", **SMALL)
    again = build(records, out=tmp_path / "p", **SMALL)
    assert not again.already_built
    assert build(records, out=tmp_path / "p", **SMALL).already_built
    with pytest.raises(ExistsError, match="pairs"):
        build(records, out=tmp_path / "p", tokenizer="byte", chat=True, progress=False)


def test_a_build_of_chats_says_how_pairs_are_built(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["build", str(source), "--tokenizer", "byte", "--out", str(tmp_path / "s")]
    assert main([*command, "--chat"]) != 0
    said = capsys.readouterr().err
    assert "pairs.jsonl:1: no answer" in said and "--pairs" in said


def test_a_policy_that_makes_several_documents_of_a_chat_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each_answer"):
        build(RECORDS, out=tmp_path / "s", policy="each_answer", **SMALL)


ASKED = [
    {"role": "user", "content": "what is two plus two?"},
    {"role": "assistant", "content": "four", "reasoning_content": "two and two"},
    {"role": "user", "content": "and you say hello"},
]
ANSWERS = ("hello to you", "the quick brown fox")


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    train_bpe(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(SPECIAL))
    return folder


@pytest.mark.parametrize("shape", ["llama3", "qwen2", "qwen3", "gemma", "mistral", "phi3"])
def test_answers_by_a_models_own_template_have_the_ids_that_transformers_gives(
    tokenizer_folder: Path, tmp_path: Path, shape: str
) -> None:
    from transformers import AutoTokenizer

    template = tmp_path / "tokenizer_config.json"
    template.write_text(json.dumps({"chat_template": plain(shape), **SPECIAL}))
    chosen, rejected = ([{"role": "assistant", "content": text}] for text in ANSWERS)
    record = {"prompt": ASKED, "chosen": chosen, "rejected": rejected}
    built = build(
        [record],
        out=tmp_path / "s",
        tokenizer=str(tokenizer_folder),
        template=str(template),
        pairs=True,
        progress=False,
    )
    reference = AutoTokenizer.from_pretrained(str(tokenizer_folder))
    document, at = built.store.document(0), 0
    for (ids, _), answer in zip(answers_of(document), (chosen, rejected), strict=True):
        expected = reference.apply_chat_template(
            ASKED + answer, chat_template=plain(shape), tokenize=True, return_dict=False
        )
        assert ids == expected
        weights = document.loss_weights[at : at + len(ids)]
        trained = built.tokenizer.decode([i for i, w in zip(ids, weights, strict=True) if w > 0])
        assert answer[0]["content"] in trained and ASKED[2]["content"] not in trained
        at += len(ids)
    assert [label for _, label in answers_of(document)] == [1, 2]


def test_answers_of_several_turns_that_a_template_rewrites_are_refused_or_end_trained(
    tokenizer_folder: Path, tmp_path: Path
) -> None:
    template = tmp_path / "tokenizer_config.json"
    template.write_text(json.dumps({"chat_template": plain("qwen3"), **SPECIAL}))
    said = {"role": "assistant", "content": "four", "reasoning_content": "two and two"}
    again = {"role": "assistant", "content": "five", "reasoning_content": "and one"}
    record = {
        "prompt": ASKED[:1],
        "chosen": [said, ASKED[2], again],
        "rejected": [{"role": "assistant", "content": "hello"}],
    }
    settings: dict[str, Any] = {"template": str(template), "pairs": True, "progress": False}
    settings |= {"tokenizer": str(tokenizer_folder)}
    # Each answer in a document of its own is no way out: a pair is one document.
    with pytest.raises(InputError, match=r'follow .*; train the last.*\(policy="last_answer"\)$'):
        build([record], out=tmp_path / "s", **settings)
    built = build([record], out=tmp_path / "t", policy="last_answer", **settings)
    document = built.store.document(0)
    trained = built.tokenizer.decode(document.tokens[document.loss_weights > 0].tolist())
    assert trained.endswith("five<|im_end|><think>\n\n</think>\n\nhello<|im_end|>")
    assert "four" not in trained


def test_fields_that_are_not_kept_are_counted_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = {"prompt": "a", "chosen": "b", "rejected": "c"}
    records: list[dict[str, Any]] = [
        {"id": "one", **pair, "margin": 0.5, "[bold]\x1b": 1, "tools": None},
        {"id": "two", **pair, "margin": 0.0, "system": "be brief", "score_chosen": None},
        {"prompt": "a", "answers": ["b", "c"], "scores": [1, 2], "completion": "d"},
        {"prompt": "a", "completion": "b", "label": True, "scores": [1, 2]},
    ]
    source = write_jsonl(tmp_path / "pairs.jsonl", records)
    command = ["build", str(source), "--pairs", "--tokenizer", "byte", "--out"]
    assert main([*command, str(tmp_path / "s")]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in told if "not kept" in line] == [
        "the field [bold]\\x1b, not kept: in 1 record",
        "the field completion, not kept: in 1 record",
        "the field margin, not kept: in 2 records",
        "the field scores, not kept: in 1 record",
    ]
    report = json.loads((tmp_path / "s" / "report.json").read_text())
    assert report["dirt"]["the field margin, not kept"] == 2
    assert report["dirt_places"] == []


@pytest.mark.parametrize("chunk_bytes", [700, 1 << 20])
def test_many_fields_that_are_not_kept_are_told_in_few_lines(
    tmp_path: Path, chunk_bytes: int
) -> None:
    pair = {"prompt": "a", "chosen": "b", "rejected": "c"}
    records = [{**pair, **{f"{n}-{k}": 1 for k in range(9)}, "x" * 500: 1} for n in range(30)]
    options = {**SMALL, "chunk_bytes": chunk_bytes}
    dirt = build(records, out=tmp_path / "s", **options).report["dirt"]
    assert dirt.pop("271 fields in all, not kept") == 30
    assert len(dirt) == 20 and max(map(len, dirt)) < 90
    assert dirt[f"the field {'x' * 60}, not kept"] == 30
