"""Episodes: one document a row, cut by a named policy, the untrained left out and counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import (
    check_ledger,
    episode_rows,
    num_targets,
    scratch,
    spans_in,
    write_store,
)

from tokenreel import StoreWriter, open_store
from tokenreel.errors import ConfigError
from tokenreel.rows import episodes
from tokenreel.rows.episodes import plan_episodes
from tokenreel.rows.packed import plan_packed
from tokenreel.text.turns import ROLE_CODES, TURN


@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 3, 7, 20, 41]), min_size=1, max_size=10),
    seq_len=st.integers(1, 12),
    truncation=st.sampled_from(["keep_first", "keep_last", "split"]),
    min_tokens=st.sampled_from([1, 2, 5]),
    sidecar=st.sampled_from([None, "weights", "mask", "turns"]),
    shard_tokens=st.sampled_from([4, 11, 30]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=15, deadline=None)
def test_each_document_with_a_target_is_one_row(
    lengths: list[int],
    seq_len: int,
    truncation: str,
    min_tokens: int,
    sidecar: str | None,
    shard_tokens: int,
    seed: int,
) -> None:
    if sidecar == "turns":
        shard_tokens = max(shard_tokens, 41)  # a chat stays in one shard
    lengths = [*lengths, 2]
    with scratch() as folder:
        path = folder / "s"
        documents = write_store(
            path, lengths, sidecar=sidecar, shard_tokens=shard_tokens, seed=seed
        )
        split = open_store(path)["train"]
        settings = {"seq_len": seq_len, "truncation": truncation, "min_tokens": min_tokens}
        expected = episode_rows(documents, **settings)  # type: ignore[arg-type]
        if not expected:
            with pytest.raises(ConfigError, match="no document can be trained on"):
                plan_episodes(split=split, **settings)  # type: ignore[arg-type]
            return
        plan = plan_episodes(split=split, **settings)  # type: ignore[arg-type]
        assert plan.num_rows == len(expected)
        chosen = np.random.default_rng(seed).permutation(plan.num_rows)
        pieces = plan.pieces(chosen)
        for i, row in enumerate(chosen.tolist()):
            shown: list[int] = []
            begin, end = pieces.row_offsets[i : i + 2]
            for p in range(begin, end):
                start, length = int(pieces.start[p]), int(pieces.length[p])
                shown += split.shards[pieces.shard[p]].read(start, start + length).tolist()
                assert pieces.document[p] == expected[row][0].document
            assert shown == [slot.token for slot in expected[row]]
            assert pieces.first[begin:end].tolist() == [True] + [False] * (end - begin - 1)
        found = [(n, *hit) for n in range(len(documents)) for hit in plan.find(n)]
        assert found == list(spans_in(expected))
        check_ledger(plan, sum(lengths), sum(map(num_targets, expected)))


def write_chat(path: Path) -> None:
    """One chat of 20 tokens: a system turn, then user and assistant in turns."""
    turns = np.zeros(5, TURN)
    turns["start"], turns["length"] = [0, 3, 8, 12, 16], [3, 5, 4, 4, 4]
    turns["role"] = [ROLE_CODES[role] for role in ("system", *("user", "assistant") * 2)]
    turns["weight"] = turns["role"] == ROLE_CODES["assistant"]
    with StoreWriter(path, vocab_size=100, turns=True) as writer:
        writer.add(range(20), turns=turns)


def test_a_chat_keeps_its_system_turn_and_last_whole_turns_in_one_segment(tmp_path: Path) -> None:
    write_chat(tmp_path / "s")
    plan = plan_episodes(split=open_store(tmp_path / "s")["train"], seq_len=12)
    assert plan.settings["truncation"] == "whole_turns"
    pieces = plan.pieces(np.array([0]))
    assert pieces.start.tolist() == [0, 12]
    assert pieces.length.tolist() == [3, 8]
    assert pieces.first.tolist() == [True, False]
    assert pieces.row_offsets.tolist() == [0, 2]
    assert plan.find(0) == [(0, 0, 3), (0, 12, 20)]
    assert plan.ledger["truncated"] == 9
    assert plan.ledger["trained"] == 4
    check_ledger(plan, 20, 4)


def test_a_chat_whose_system_turn_does_not_fit_beside_its_last_answer_is_dropped_and_counted(
    tmp_path: Path,
) -> None:
    turns = np.zeros(3, TURN)
    turns["start"], turns["length"] = [0, 6, 8], [6, 2, 5]
    turns["role"] = [ROLE_CODES[role] for role in ("system", "user", "assistant")]
    turns["weight"] = [0, 0, 1]
    short = np.zeros(2, TURN)
    short["start"], short["length"], short["role"], short["weight"] = (
        [0, 2],
        [2, 5],
        [ROLE_CODES["user"], ROLE_CODES["assistant"]],
        [0, 1],
    )
    with StoreWriter(tmp_path / "s", vocab_size=100, turns=True) as writer:
        writer.add(range(13), turns=turns)
        writer.add(range(20, 27), turns=short)
    split = open_store(tmp_path / "s")["train"]
    for plan in (plan_episodes(split=split, seq_len=9), plan_packed(split=split, seq_len=9)):
        assert plan.num_rows == 1
        assert (plan.find(0), plan.find(1)) == ([], [(0, 0, 7)])
        assert plan.ledger["unfit_documents"] == 1
        assert (plan.ledger["dropped"], plan.ledger["truncated"]) == (13, 0)
    # One token more, and system turn and answer fit.
    fitting = plan_episodes(split=split, seq_len=10)
    assert fitting.find(0) == [(0, 0, 6), (0, 8, 13)]
    assert fitting.ledger["unfit_documents"] == 0


def test_what_loses_its_last_target_to_the_cut_is_dropped(tmp_path: Path) -> None:
    write_chat(tmp_path / "s")
    split = open_store(tmp_path / "s")["train"]
    # The assistant's first token is number 8: with seven inputs its label is the last but gone.
    with pytest.raises(ConfigError) as caught:
        plan_episodes(split=split, seq_len=7, truncation="keep_first")
    assert str(caught.value) == (
        "train: no document can be trained on, so there are no rows "
        "(expected one of >= 2 tokens with a trained target, got 1 documents without)"
    )
    assert plan_episodes(split=split, seq_len=8, truncation="keep_first").ledger["trained"] == 1


def test_an_unknown_truncation_is_named_with_the_known_ones(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [5])
    split = open_store(tmp_path / "s")["train"]
    with pytest.raises(ConfigError, match=r"unknown truncation .*keep_first.*got 'keep_frist'"):
        plan_episodes(split=split, seq_len=4, truncation="keep_frist")
    with pytest.raises(ConfigError, match="whole_turns needs a turn table"):
        plan_episodes(split=split, seq_len=4, truncation="whole_turns")


def test_planning_in_small_blocks_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path / "s", [7, 20, 1, 1, 13] * 4, sidecar="turns")
    split = open_store(tmp_path / "s")["train"]
    whole = plan_episodes(split=split, seq_len=9, truncation="split")
    monkeypatch.setattr(episodes, "DOCUMENTS_AT_ONCE", 3)
    parts = plan_episodes(split=split, seq_len=9, truncation="split")
    assert parts.ledger == whole.ledger
    rows = np.arange(whole.num_rows)
    assert np.array_equal(parts.pieces(rows).start, whole.pieces(rows).start)


def test_tokens_between_documents_are_dropped(tmp_path: Path) -> None:
    np.arange(20, dtype="<u4").tofile(tmp_path / "tokens.bin")
    np.array([[0, 8], [12, 8]], "<u8").tofile(tmp_path / "episodes.idx")
    plan = plan_episodes(split=open_store(tmp_path)["train"], seq_len=4, truncation="keep_last")
    assert plan.num_rows == 2
    assert plan.ledger["dropped"] == 4
    assert plan.ledger["truncated"] == 6
    check_ledger(plan, 20, 8)
