"""Windows over shards with straddling documents: which tokens, which rows, the ledger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.feed.making import (
    check_ledger,
    num_targets,
    scratch,
    spans_in,
    window_rows,
    write_store,
)

from tokenreel import open_store
from tokenreel.errors import ConfigError, StoreError
from tokenreel.rows.windows import plan_windows

LENGTHS = st.lists(st.sampled_from([0, 1, 1, 2, 3, 7, 20]), min_size=1, max_size=12)


@given(
    lengths=LENGTHS,
    seq_len=st.integers(1, 12),
    by_document=st.booleans(),
    sidecar=st.sampled_from([None, "weights", "mask", "turns"]),
    shard_tokens=st.sampled_from([4, 11, 30]),
    seed=st.integers(0, 1000),
)
@example([1] * 9, 3, True, None, 4, 0)  # windows of nothing but borders
@example([5, 1, 1, 1], 4, True, None, 30, 0)  # only the last window is one
@example([20, 20], 5, False, "mask", 6, 3)
@settings(max_examples=20, deadline=None)
def test_windows_show_the_stream_and_nothing_untrained(
    lengths: list[int],
    seq_len: int,
    by_document: bool,
    sidecar: str | None,
    shard_tokens: int,
    seed: int,
) -> None:
    if sidecar == "turns":
        shard_tokens = max(shard_tokens, 20)  # a chat stays in one shard
    if sum(lengths) < 2:
        lengths = [*lengths, 2]
    with scratch() as folder:
        path = folder / "s"
        documents = write_store(
            path, lengths, sidecar=sidecar, shard_tokens=shard_tokens, seed=seed
        )
        split = open_store(path)["train"]
        expected = window_rows(documents, seq_len, by_document=by_document)
        if not expected:
            with pytest.raises(ConfigError, match="no window has a trained target"):
                plan_windows(split=split, seq_len=seq_len, by_document=by_document)
            return
        plan = plan_windows(split=split, seq_len=seq_len, by_document=by_document)
        assert plan.num_rows == len(expected)
        chosen = np.random.default_rng(seed).permutation(plan.num_rows)
        pieces = plan.pieces(chosen)
        for i, row in enumerate(chosen.tolist()):
            shown, firsts = [], []
            for p in range(pieces.row_offsets[i], pieces.row_offsets[i + 1]):
                start, length = int(pieces.start[p]), int(pieces.length[p])
                assert length > 0
                shown += split.shards[pieces.shard[p]].read(start, start + length).tolist()
                firsts += [bool(pieces.first[p])] + [False] * (length - 1)
                if by_document:
                    owners = {
                        slot.document for slot in expected[row][len(shown) - length :][:length]
                    }
                    assert owners == {int(pieces.document[p])}
            assert shown == [slot.token for slot in expected[row]]
            assert firsts == [slot.first for slot in expected[row]]
        found = [(number, *hit) for number in range(len(documents)) for hit in plan.find(number)]
        assert sorted(found) == sorted(spans_in(expected))
        check_ledger(plan, sum(lengths), sum(map(num_targets, expected)))
        assert plan.ledger["untrained_rows"] == plan.num_windows - plan.num_rows


def test_all_windows_are_rows_of_closed_form_where_all_are_trained(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [50, 30, 21])
    split = open_store(tmp_path / "s")["train"]
    plain = plan_windows(split=split, seq_len=10)
    assert plain.kept is None
    assert plain.num_rows == 10
    assert plain.ledger["dropped"] == 0
    assert plain.ledger["trained"] == 100
    assert plan_windows(split=split, seq_len=10, by_document=True).ledger["trained"] == 98


def test_many_short_documents_need_no_table(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [2] * 3000)
    plan = plan_windows(split=open_store(tmp_path / "s")["train"], seq_len=2, by_document=True)
    assert plan.kept is None
    assert plan.ledger["masked"] == plan.ledger["placed"] + plan.ledger["overlap"] - 3000


def test_a_window_without_a_trained_target_is_dropped_and_counted(tmp_path: Path) -> None:
    from tokenreel import StoreWriter

    with StoreWriter(tmp_path / "s", vocab_size=100, weights="uint8") as writer:
        # Row 0 trains; the only trained token of row 1's stream is its first, which is no target.
        writer.add(range(13), weights=[1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1])
    plan = plan_windows(split=open_store(tmp_path / "s")["train"], seq_len=4)
    assert plan.kept is not None
    assert plan.kept.tolist() == [0, 2]
    assert plan.ledger == {
        "tokens": 13,
        "rows": 2,
        "untrained_rows": 1,
        "placed": 10,
        "overlap": 0,
        "truncated": 0,
        "dropped": 3,
        "trained": 5,
        "masked": 5,
        "slots": 10,
        "padding": 0,
    }


def test_one_token_is_too_few(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [1])
    with pytest.raises(ConfigError) as caught:
        plan_windows(split=open_store(tmp_path / "s")["train"], seq_len=4)
    assert str(caught.value) == "train: too few tokens for a window (expected >= 2, got 1)"


def test_document_windows_over_tokens_of_no_document_are_refused_when_planned(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "episodes"
    folder.mkdir()
    np.arange(20, dtype="<u4").tofile(folder / "tokens.bin")
    np.array([[0, 8], [12, 8]], "<u8").tofile(folder / "episodes.idx")
    split = open_store(folder)["train"]
    assert plan_windows(split=split, seq_len=4).num_rows == 5
    with pytest.raises(StoreError) as caught:
        plan_windows(split=split, seq_len=4, by_document=True)
    assert str(caught.value) == (
        "train: some tokens belong to no document, so a window over them has no segments "
        "(expected 20 tokens in documents, got 16); "
        "make rows of documents instead: episodes or packed"
    )


def test_document_windows_need_documents(tmp_path: Path) -> None:
    np.arange(50, dtype="<u2").tofile(tmp_path / "train.bin")
    split = open_store(tmp_path / "train.bin", dtype="uint16")["train"]
    with pytest.raises(StoreError, match="the documents of this split are not known"):
        plan_windows(split=split, seq_len=4, by_document=True)


def test_planning_in_small_blocks_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenreel.rows import untrained

    write_store(tmp_path / "s", [7, 20, 1, 1, 13] * 4, sidecar="turns", shard_tokens=21)
    split = open_store(tmp_path / "s")["train"]
    whole = plan_windows(split=split, seq_len=3, by_document=True)
    monkeypatch.setattr(untrained, "TOKENS_AT_ONCE", 10)
    monkeypatch.setattr(untrained, "DOCUMENTS_AT_ONCE", 2)
    parts = plan_windows(split=split, seq_len=3, by_document=True)
    assert parts.ledger == whole.ledger
    assert parts.kept is not None and whole.kept is not None
    assert parts.kept.tolist() == whole.kept.tolist()
