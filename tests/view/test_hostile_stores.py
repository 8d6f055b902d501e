"""The viewer against stores whose manifest, names, places and weights somebody made up to harm."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.view.looking import MARKUP, opened, write_recipe
from tests.view.test_hostile_requests import PARTS, ask

from tokenreel import Provenance, StoreWriter
from tokenreel.text.turns import TURN
from tokenreel.view.answers import MOST_ROWS
from tokenreel.view.row_facts import LARGEST_PAINT

TOKENIZERS: list[dict[str, Any]] = [
    {"control_ids": {"a": True}},
    {"control_ids": [1]},
    {"name": {"a": 1}, "control_ids": {"x": [1]}},
    {"fingerprint": 5, "name": 5},
    {"kind": ["byte"], "name": [], "fingerprint": "z"},
    {"name": "a\0b", "fingerprint": "z"},
    {"name": "/etc/passwd", "fingerprint": "z"},
    {"control_ids": {MARKUP: 5}, "fingerprint": {}},
]
REPORTS: list[Any] = [
    5,
    [1],
    {"settings": 5},
    {"settings": {"template": {"a": 1}, "chat": True}},
    {"splits": "x", "skipped": [1], "files": {"a": 1}},
    {"__proto__": {"x": 1}, "constructor": MARKUP},
]


def test_a_manifest_may_say_anything_of_its_tokenizer_and_its_build(tmp_path: Path) -> None:
    cases = [(item, None) for item in TOKENIZERS] + [(None, item) for item in REPORTS]
    for number, (tokenizer, report) in enumerate(cases):
        path = tmp_path / f"s{number}"
        with StoreWriter(path, vocab_size=300, tokenizer=tokenizer) as writer:
            writer.add([1, 2, 5])
            if report is not None:
                writer.notes["report"] = report
        answers = opened(path)
        for question in ("api/target", "api/store/0", "api/store/0/0/document/0"):
            assert ask(answers, question).status == 200, (tokenizer, report, question)


def test_damaged_turns_are_an_error_and_not_a_crash(tmp_path: Path) -> None:
    turns = np.zeros(1, TURN)
    turns["length"], turns["weight"] = 40, 1
    with StoreWriter(tmp_path / "s", vocab_size=9, turns=True) as writer:
        writer.add([1] * 40, turns=turns)
    file = next((tmp_path / "s").rglob("*.turns"))
    for name, value in (("weight", np.nan), ("length", 2**32 - 1), ("start", 2**63), ("role", 99)):
        damaged = turns.copy()
        damaged[name] = value
        damaged.tofile(file)
        answer = ask(tmp_path / "s", "api/store/0/0/document/0")
        assert answer.status in (200, 500)
        assert "viewer failed" not in answer.body.decode()


@pytest.mark.parametrize("name", ["n" * 5_000, "n" * 300, "..", ".", "a/b"])
def test_any_name_of_a_tokenizer_is_shown_as_a_name(tmp_path: Path, name: str) -> None:
    tokenizer = {"fingerprint": "x", "name": name}
    with StoreWriter(tmp_path / "s", vocab_size=300, tokenizer=tokenizer) as writer:
        writer.add([1, 2])
    answer = ask(tmp_path / "s", "api/store/0")
    assert json.loads(answer.body)["tokenizer"]["name"] == name
    assert not json.loads(answer.body)["tokenizer"]["at_hand"]


def test_a_long_name_of_a_control_token_does_not_fill_the_memory(tmp_path: Path) -> None:
    tokenizer = {"name": "n", "control_ids": {"A" * 10_000: 5}}
    with StoreWriter(tmp_path / "s", vocab_size=300, tokenizer=tokenizer) as writer:
        writer.add([5] * 5_000)
        writer.add([1, 5, 2])
    answers = opened(tmp_path / "s")
    answer = ask(answers, "api/store/0/0/document/0", "stop=4096")
    assert answer.status == 200
    assert len(answer.body) < 500_000
    (shown,) = {*json.loads(answer.body)["texts"]}
    assert shown == "A" * 32 + "… 9,968 characters"
    texts = answers.answer("api/store/0/0/document/1")["texts"]
    assert texts == [None, "A" * 256 + "… 9,744 characters", None]


def test_the_largest_answer_of_long_names_is_some_megabytes(tmp_path: Path) -> None:
    tokenizer = {"name": "n", "control_ids": {"A" * 10_000: 5}}
    with StoreWriter(tmp_path / "s", vocab_size=300, tokenizer=tokenizer) as writer:
        writer.add([5] * (LARGEST_PAINT + 100))
    width = LARGEST_PAINT // MOST_ROWS
    recipe = write_recipe(
        tmp_path / "r.toml",
        f"seq_len = {width}\nglobal_batch_size = {MOST_ROWS}\n",
        {"name": "p", "path": "s"},
    )
    answer = ask(recipe, "api/step/0/rows", f"stop={MOST_ROWS}&slots={width}")
    rows = json.loads(answer.body)
    assert sum(len(row["ids"]) for row in rows) == LARGEST_PAINT
    assert len(answer.body) < 6_000_000


def test_a_long_provenance_does_not_fill_the_memory(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=300, provenance=True) as writer:
        for number in range(40):
            place = Provenance(file="P" * 200_000, row=number, id=f"id {number}")
            writer.add([1] * 17, provenance=place)
    source = {"name": "p", "path": "s", "rows": "episodes"}
    head = "seq_len = 16\nglobal_batch_size = 64\n"
    answers = opened(write_recipe(tmp_path / "r.toml", head, source))
    for path, query in (
        ("api/step/0", ""),
        ("api/step/0/rows", "stop=64&slots=16"),
        ("api/step/0/row/0", ""),
        ("api/document/0/7", ""),
        ("api/search", "q=7"),
    ):
        assert len(ask(answers, path, query).body) < 100_000, path
    told = answers.answer("api/document/0/7")
    assert told["provenance"].startswith("PPPP")
    assert told["provenance"].endswith("PPPP:8 [id 7]")
    assert "… 199,709 characters …" in told["provenance"]
    assert told["place"]["row"] == 7


def test_weights_that_are_no_numbers_are_told_as_damage(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=300, weights="float32", shard_bytes=80) as writer:
        for _ in range(2):
            writer.add([1] * 40, weights=np.ones(40, np.float32))
    file = sorted((tmp_path / "s").rglob("*.weights"))[1]
    source = {"name": "p", "path": "s"}
    head = "seq_len = 64\nglobal_batch_size = 2\n"
    recipe = write_recipe(tmp_path / "r.toml", head, source)
    asked = [(recipe, "api/step/0"), (recipe, "api/step/0/row/0")]
    asked += [
        (tmp_path / "s", "api/store/0/0/document/1"),
        (tmp_path / "s", "api/store/0/0/tokens"),
    ]
    for weight in (np.nan, np.inf, -1):
        damaged = np.ones(40, "<f4")
        damaged[3] = weight
        damaged.tofile(file)
        for target, path in asked:
            error = json.loads(ask(target, path).body)["error"]
            assert set(error) == PARTS
            assert error["what"] == "the weight of token 3 is negative or not a number", path
            assert error["where"].endswith(file.name)
            assert float(error["actual"]) == weight or np.isnan(weight)


def test_the_steps_of_a_giant_document_do_not_fill_the_memory(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=300) as writer:
        writer.add(np.ones(4_000_001, np.uint16))
    source = {"name": "p", "path": "s"}
    head = "seq_len = 8\nglobal_batch_size = 4\n"
    answers = opened(write_recipe(tmp_path / "r.toml", head, source))
    tracemalloc.start()
    answer = ask(answers, "api/where/0/0")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(json.loads(answer.body)["hits"]) == 100
    assert peak < 3_000_000
