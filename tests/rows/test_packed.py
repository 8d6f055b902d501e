"""Packed rows: nothing is lost, nothing comes twice, and the ledger says the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows.corpora import Place, expected_plan, make_turns, read_row, read_rows, write_store

import tokenreel
from tokenreel.errors import ConfigError, StoreError
from tokenreel.rows.packed import Packed, plan_packed
from tokenreel.rows.packing import METHODS
from tokenreel.rows.plan_table import COLUMNS
from tokenreel.store.document_index import Pairs
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.split import Split

# 24 bytes a shard: documents of more than 12 tokens lie in several.
lengths_strategy = st.lists(st.integers(0, 40), min_size=1, max_size=14).filter(any)
settings_strategy = st.fixed_dictionaries(
    {
        "seq_len": st.integers(1, 30),
        "packing": st.sampled_from(sorted(METHODS)),
        "truncation": st.sampled_from(["split", "keep_first", "keep_last"]),
        "block_docs": st.sampled_from([1, 2, 5, 1000]),
        "min_trained": st.sampled_from([0, 1, 1, 3]),
        "threads": st.sampled_from([1, 3]),
    }
)
turn_strategy = st.tuples(
    st.sampled_from(["system", "user", "assistant", "tool", "user", "assistant"]),
    st.integers(1, 9),
    st.integers(0, 2),
    st.integers(0, 1),
    st.sampled_from([0.0, 0.5, 1.0]),
)
chats_strategy = st.lists(st.lists(turn_strategy, max_size=7), min_size=1, max_size=10).filter(any)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    fresh = Place()
    yield fresh
    fresh.remove()


def check_plan_is_whole(plan: Packed) -> None:
    """Hold a plan against its documents: rows, tokens, ledger, and the way back."""
    expected, ledger = expected_plan(plan)
    rows = read_rows(plan)
    assert Counter(segment for row in rows for segment, _ in row) == expected
    shown: dict[int, list[tuple[int, int, int]]] = {}
    for number, row in enumerate(rows):
        assert 2 <= sum(len(tokens) for _, tokens in row) <= plan.seq_len + 1
        for (document, ranges), tokens in row:
            source = plan.split.document(document).tokens.tolist()
            assert tokens == [token for start, stop in ranges for token in source[start:stop]]
            shown.setdefault(document, []).extend((number, *item) for item in ranges)
    for document in range(int(plan.split.document_starts[-1])):
        hits = plan.find(document)
        assert sorted(hits) == sorted(shown.get(document, []))
        assert [hit[1] for hit in hits] == sorted(hit[1] for hit in hits)
    check_ledger(plan, ledger)


def check_ledger(plan: Packed, expected: dict[str, int]) -> None:
    ledger = plan.ledger
    slots = plan.num_rows * (plan.seq_len + 1)
    assert {name: ledger[name] for name in expected} == expected
    assert ledger["rows"] == plan.num_rows
    assert ledger["slots"] == slots
    assert ledger["placed"] + ledger["truncated"] + ledger["dropped"] == plan.split.num_tokens
    assert ledger["placed"] + ledger["overlap"] + ledger["padding"] == slots
    assert ledger["trained"] + ledger["masked"] == ledger["placed"] + ledger["overlap"]


def plan_or_refuse(split: Split, **options: Any) -> Packed | None:
    """Plan, or see that a plan without rows is refused and only that."""
    try:
        return plan_packed(split=split, **options)
    except ConfigError as error:
        assert error.what.startswith("no document can be trained on")
        return None


@settings(max_examples=15, deadline=None)
@given(lengths=lengths_strategy, options=settings_strategy)
def test_rows_are_the_documents_minus_what_the_ledger_says(
    place: Place, lengths: list[int], options: dict[str, Any]
) -> None:
    plan = plan_or_refuse(write_store(place(), lengths)["train"], **options)
    if plan is None:
        assert min(max(lengths) - 1, options["seq_len"]) < max(options["min_trained"], 1)
        return
    check_plan_is_whole(plan)


@settings(max_examples=15, deadline=None)
@given(lengths=lengths_strategy, options=settings_strategy, data=st.data())
def test_stored_weights_decide_what_is_dropped(
    place: Place, lengths: list[int], options: dict[str, Any], data: st.DataObject
) -> None:
    weight = st.sampled_from([0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0])
    weights = [data.draw(st.lists(weight, min_size=n, max_size=n)) for n in lengths]
    store = write_store(place(), lengths, weights=weights)
    plan = plan_or_refuse(store["train"], **options)
    if plan is not None:
        check_plan_is_whole(plan)


@pytest.mark.parametrize("at_once", [1, 3, 7])
def test_weights_are_counted_the_same_in_any_portions(
    place: Place, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    generator = np.random.default_rng(1)
    lengths = generator.integers(0, 30, 40).tolist()
    weights = [(generator.random(length) < 0.1).astype(float).tolist() for length in lengths]
    store = write_store(place(), lengths, weights=weights)
    monkeypatch.setattr("tokenreel.rows.segments.WEIGHTS_AT_ONCE", at_once)
    check_plan_is_whole(plan_packed(split=store["train"], seq_len=9))


@settings(max_examples=20, deadline=None)
@given(
    chats=chats_strategy,
    options=settings_strategy,
    truncation=st.sampled_from([None, None, "split", "keep_first", "keep_last"]),
)
def test_chats_keep_their_system_turn_and_whole_last_turns(
    place: Place, chats: list[Any], options: dict[str, Any], truncation: str | None
) -> None:
    lengths = [sum(turn[1] for turn in chat) for chat in chats]
    turns = [make_turns(chat) for chat in chats]
    store = write_store(place(), lengths, turns=turns, shard_bytes=140)
    plan = plan_or_refuse(store["train"], **{**options, "truncation": truncation})
    if plan is None:
        return
    assert plan.settings["truncation"] == (truncation or "whole_turns")
    check_plan_is_whole(plan)


def test_a_cut_chat_is_one_segment_of_two_pieces(place: Place) -> None:
    spec = [("system", 3, 1, 0, 0.0), ("user", 5, 1, 0, 0.0), ("assistant", 4, 1, 0, 1.0)]
    spec += [("user", 2, 1, 0, 0.0), ("assistant", 3, 1, 0, 1.0)]
    store = write_store(place(), [17], turns=[make_turns(spec)], shard_bytes=140)
    plan = plan_packed(split=store["train"], seq_len=10)
    pieces = plan.pieces(np.arange(1))
    assert pieces.start.tolist() == [0, 12]
    assert pieces.length.tolist() == [3, 5]
    assert pieces.first.tolist() == [True, False]
    assert plan.find(0) == [(0, 0, 3), (0, 12, 17)]
    assert plan.ledger["truncated"] == 9
    assert plan.ledger["trained"] == 2


def test_built_chats_are_cut_by_whole_turns(place: Place) -> None:
    chats = [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "x" * (7 * number)},
                {"role": "assistant", "content": "y" * 5},
                {"role": "user", "content": "and?"},
                {"role": "assistant", "content": "z" * number},
            ]
        }
        for number in range(12)
    ]
    store = tokenreel.build(chats=iter(chats), out=place(), tokenizer="byte").store
    plan = plan_packed(split=store["train"], seq_len=47)
    check_plan_is_whole(plan)
    assert plan.ledger["cut_documents"] > 3
    assert plan.ledger["trained"] > 0


def test_split_loses_no_transition(place: Place) -> None:
    store = write_store(place(), [1000, 3, 41, 2, 21, 20, 22])
    plan = plan_packed(split=store["train"], seq_len=20)
    seen = Counter(
        (left, right)
        for row in read_rows(plan)
        for _, tokens in row
        for left, right in pairwise(tokens)
    )
    stored = Counter(
        (left, right)
        for document in store["train"].documents()
        for left, right in pairwise(document.tokens.tolist())
    )
    assert seen == stored
    assert plan.ledger["dropped"] == plan.ledger["truncated"] == 0
    assert plan.ledger["overlap"] == 49 + 1 + 1  # cuts of 1,000, 41 and 22 tokens


def test_the_rows_do_not_depend_on_threads(place: Place) -> None:
    lengths = np.random.default_rng(5).integers(0, 50, 300).tolist()
    split = write_store(place(), lengths, shard_bytes=400)["train"]
    one, three = (
        plan_packed(split=split, seq_len=31, block_docs=17, threads=threads) for threads in (1, 3)
    )
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one.table, name), getattr(three.table, name))
    assert one.ledger == three.ledger


@pytest.mark.parametrize("method", METHODS)
def test_the_rows_do_not_depend_on_kernels(place: Place, method: str) -> None:
    lengths = np.random.default_rng(6).integers(0, 50, 200).tolist()
    path = write_store(place(), lengths, shard_bytes=400).path
    program = (
        "import sys, hashlib, tokenreel\n"
        "from tokenreel.rows.packed import plan_packed\n"
        "from tokenreel.rows.plan_table import COLUMNS\n"
        "split = tokenreel.open_store(sys.argv[1])['train']\n"
        "plan = plan_packed(split=split, seq_len=31, packing=sys.argv[2])\n"
        "for name in COLUMNS:\n"
        "    print(name, hashlib.sha256(getattr(plan.table, name).tobytes()).hexdigest())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, str(path), method],
            env={**os.environ, "TOKENREEL_NATIVE": wanted},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for wanted in ("0", "1")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().split()) == 2 * len(COLUMNS)


def test_rows_can_be_asked_in_any_order_and_twice(place: Place) -> None:
    split = write_store(place(), [9, 30, 4, 17, 2, 12, 6])["train"]
    plan = plan_packed(split=split, seq_len=11)
    all_rows = read_rows(plan)
    wanted = np.array([3, 0, 3, plan.num_rows - 1])
    pieces = plan.pieces(wanted)
    assert [read_row(split, pieces, at) for at in range(4)] == [all_rows[row] for row in wanted]
    assert plan.pieces(np.empty(0, np.int64)).num_rows == 0
    with pytest.raises(IndexError):
        plan.pieces(np.array([plan.num_rows]))


def test_blocks_are_packed_apart_and_numbered_in_order(place: Place) -> None:
    split = write_store(place(), [5, 5, 5, 5, 5, 5])["train"]
    plan = plan_packed(split=split, seq_len=14, block_docs=2)
    assert [[segment[0] for segment, _ in row] for row in read_rows(plan)] == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]


def test_tokens_in_no_document_count_as_dropped(place: Place) -> None:
    store = write_store(place(), [30], shard_bytes=1024)
    tokens = store["train"].shards[0].token_file
    pairs = np.array([[2, 5], [10, 1], [12, 8]], np.uint64)
    index = IndexFile(path=tokens.path, count=3, load=lambda: Pairs(pairs))
    shard = Shard(name="gaps", token_file=tokens, index_file=index)
    plan = plan_packed(split=Split("train", [shard]), seq_len=15)
    assert plan.ledger["placed"] == 13
    assert plan.ledger["dropped"] == 17
    assert plan.find(2) == [(0, 0, 8)]


def test_settings_name_all_that_the_rows_depend_on(place: Place) -> None:
    split = write_store(place(), [9, 30])["train"]
    base: dict[str, Any] = {"seq_len": 11}
    plans = [base]
    plans += [{**base, **change} for change in ({"seq_len": 12}, {"packing": "first_fit"})]
    plans += [{**base, **change} for change in ({"truncation": "keep_last"}, {"block_docs": 7})]
    plans += [{**base, "min_trained": 2}]
    distinct = {str(plan_packed(split=split, **options).settings) for options in plans}
    assert len(distinct) == len(plans)
    assert (
        plan_packed(split=split, **base, threads=2).settings
        == plan_packed(split=split, **base).settings
    )


def test_documents_that_are_not_known_are_an_error_with_a_remedy(place: Place) -> None:
    place.root.joinpath("bare").mkdir()
    np.arange(50, dtype=np.uint16).tofile(place.root / "bare" / "train.bin")
    store = tokenreel.open_store(place.root / "bare", dtype="uint16")
    with pytest.raises(StoreError, match="open the store with eos_id="):
        plan_packed(split=next(iter(store.splits.values())), seq_len=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_len": 0}, r"seq_len makes no sense \(expected 1 to 2,147,483,646, got 0\)"),
        ({"block_docs": 0}, r"block_docs makes no sense \(expected 1 to"),
        ({"min_trained": -1}, r"min_trained makes no sense \(expected 0 to"),
        ({"threads": -1}, r"threads makes no sense"),
        ({"packing": "tight"}, r"unknown packing \(expected best_fit or .*got 'tight'\)"),
        ({"truncation": "drop"}, r"unknown truncation \(expected split or .*got 'drop'\)"),
        ({"truncation": "whole_turns"}, r"train: whole_turns needs a turn table.*none; choose"),
        ({"min_trained": 99}, r"train: no document can be trained on.*>= 99 .*got 2 documents"),
    ],
)
def test_what_makes_no_sense_is_refused(
    place: Place, options: dict[str, Any], message: str
) -> None:
    split = write_store(place(), [9, 30])["train"]
    with pytest.raises(ConfigError, match=message):
        plan_packed(split=split, **{"seq_len": 10, **options})


def test_planning_reads_no_token(place: Place) -> None:
    absent = ArrayFile(path=place(), dtype=np.dtype("<u2"), count=25)
    pairs = np.array([[0, 5], [5, 20]], np.uint64)
    index = IndexFile(path=place(), count=2, load=lambda: Pairs(pairs))
    split = Split("train", [Shard(name="absent", token_file=absent, index_file=index)])
    assert plan_packed(split=split, seq_len=31).num_rows == 1
