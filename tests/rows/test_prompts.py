"""Prompts: one a row, whole, repeated side by side, padded as asked; nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import check_ledger, scratch, write_store

from tokenreel import Feed, Recipe, Source, StoreWriter, open_store
from tokenreel.cli.main import main
from tokenreel.errors import ConfigError, MismatchError, StoreError
from tokenreel.rows.prompts import plan_prompts
from tokenreel.testing import check_resume
from tokenreel.text.turns import TURN

PAD = 60_000


def write_prompts(path: Path, lengths: list[int], *, first: int = 1, **options: Any) -> Path:
    """Write prompts whose every token is different, with records that name them."""
    turn = np.zeros(1, TURN)
    settings = {"vocab_size": 2**16, "turns": True, "records": True, "provenance": True, **options}
    with StoreWriter(path, **settings) as writer:
        token = first
        for number, length in enumerate(lengths):
            turn["length"], turn["role"] = length, 1
            turns = turn if length else turn[:0]
            writer.add(range(token, token + length), turns=turns, record={"answer": number})
            token += length
    return path


def feed_of(*paths: Path, batch: int = 6, seq_len: int = 5, recipe: Any = (), **rows: Any) -> Feed:
    sources = [
        Source(name=f"s{number}", path=path, rows="prompts", **rows)
        for number, path in enumerate(paths)
    ]
    facts = {"seq_len": seq_len, "global_batch_size": batch, "pad_id": PAD, "sources": sources}
    return Feed(Recipe(**{**facts, **dict(recipe)}))


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=9),
    seq_len=st.integers(1, 9),
    repeats=st.integers(1, 4),
    padding=st.sampled_from(["left", "right", None]),
    truncation=st.sampled_from([None, "keep_last"]),
    shard_tokens=st.integers(9, 40),
)
@settings(max_examples=60, deadline=None)
def test_an_epoch_shows_every_prompt_that_fits_and_accounts_for_every_token(
    lengths: list[int],
    seq_len: int,
    repeats: int,
    padding: Any,
    truncation: Any,
    shard_tokens: int,
) -> None:
    ends = np.cumsum(lengths)
    fitting = [
        n for n, length in enumerate(lengths) if length and (length <= seq_len or truncation)
    ]
    if not fitting:
        return
    with scratch() as folder:
        path = write_prompts(folder / "s", lengths, shard_bytes=2 * shard_tokens)
        feed = feed_of(
            path,
            batch=repeats,
            seq_len=seq_len,
            recipe={"passes": 1},
            repeats=repeats,
            padding=padding,
            truncation=truncation,
        )
        assert len(feed) == len(fitting)
        check_ledger(feed.plans[0], num_tokens=int(ends[-1]), trained=0)
        shown = []
        for step in range(len(feed)):
            batch = feed.batch(step, extra=("records", "document_ids", "attention_mask"))
            assert batch.records is not None and batch.document_ids is not None
            numbers = {record["answer"] for record in batch.records}
            (number,) = numbers  # all rows of the step are of one prompt
            shown.append(number)
            kept = min(lengths[number], seq_len)
            tokens = list(range(int(ends[number]) - kept + 1, int(ends[number]) + 1))
            empty = seq_len - kept
            before, behind = (0, empty) if padding == "right" else (empty, 0)
            for row in range(repeats):
                is_token = [False] * before + [True] * kept + [False] * behind
                assert batch.input_ids[row].tolist() == [PAD] * before + tokens + [PAD] * behind
                assert batch.attention_mask[row].tolist() == is_token
                assert batch.segment_ids[row].tolist() == [int(here) for here in is_token]
                positions = [0] * before + list(range(kept)) + [0] * behind
                assert batch.position_ids[row].tolist() == positions
                documents = [number if here else -1 for here in is_token]
                assert batch.document_ids[row].tolist() == documents
            assert (batch.labels == -100).all() and not batch.loss_weights.any()
        assert sorted(shown) == fitting


def test_prompts_too_long_are_counted_and_shown_nowhere(tmp_path: Path) -> None:
    feed = feed_of(write_prompts(tmp_path / "s", [3, 9, 5, 6]))
    ledger = feed.plans[0].ledger
    assert (ledger["too_long"], ledger["dropped"], ledger["rows"]) == (2, 15, 2)
    assert feed.where("s0", 1) == []
    cut = feed_of(tmp_path / "s", truncation="keep_last").plans[0].ledger
    assert (cut["too_long"], cut["truncated"], cut["rows"]) == (0, 5, 4)


def test_repeats_of_several_sources_stay_side_by_side_in_one_step(tmp_path: Path) -> None:
    paths = [
        write_prompts(tmp_path / "a", [3, 2, 5, 4]),
        write_prompts(tmp_path / "b", [2, 2, 3], first=1000),
    ]
    feed = feed_of(*paths, batch=12, repeats=3)
    for step in range(20):
        groups = feed.batch(step).input_ids.reshape(4, 3, 5)
        assert (groups == groups[:, :1]).all()
    assert (
        sum(
            len(feed.where(name, number, stop_step=20))
            for name, count in (("s0", 4), ("s1", 3))
            for number in range(count)
        )
        == 20 * 12
    )


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("num_sources", [1, 2])
def test_where_is_the_inverse_of_explain(tmp_path: Path, shuffle: bool, num_sources: int) -> None:
    paths = [write_prompts(tmp_path / f"{n}", [3, 2, 5, 4, 9]) for n in range(num_sources)]
    feed = feed_of(*paths, batch=8, repeats=2, shuffle=shuffle, recipe={"passes": 2})
    shown = [
        (row.source, row.document, row.epoch, step, row.row)
        for step in range(len(feed))
        for row in feed.explain(step).rows
    ]
    assert len(shown) == 2 * 2 * 4 * num_sources
    found = [
        (f"s{source}", number, hit.epoch, hit.step, hit.row)
        for source in range(num_sources)
        for number in range(5)
        for hit in feed.where(f"s{source}", number)
    ]
    assert sorted(found) == sorted(shown)


def test_explain_gives_the_record_back(tmp_path: Path) -> None:
    feed = feed_of(write_prompts(tmp_path / "s", [3, 2]), batch=2, recipe={"passes": 1})
    segments = [row.segments[0] for row in feed.explain(0).rows]
    assert [segment.record for segment in segments] == feed.records(0)
    assert segments[0].as_dict()["record"] == {"answer": segments[0].document}


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("grad_accum", [1, 2])
def test_any_number_of_ranks_gives_the_rows_and_records_of_the_whole(
    tmp_path: Path, world_size: int, grad_accum: int
) -> None:
    path = write_prompts(tmp_path / "s", [3, 2, 5, 4, 1, 1, 2])
    whole = feed_of(path, batch=12, repeats=3)
    feed = feed_of(path, batch=12, repeats=3, recipe={"grad_accum": grad_accum})
    for step in range(4):
        rows, records = [], []
        for rank in range(world_size):
            batch = feed.batch(step, rank=rank, world_size=world_size)
            held = feed.records(step, rank=rank, world_size=world_size)
            flat = held if grad_accum == 1 else [item for part in held for item in part]
            is_row = (batch.source_ids >= 0).reshape(-1)
            assert [record is not None for record in flat] == is_row.tolist()
            rows += batch.input_ids.reshape(-1, 5)[is_row].tolist()
            records += [record for record in flat if record is not None]
        assert rows == whole.batch(step).input_ids.tolist()
        assert records == whole.records(step)


def test_groups_are_whole_on_a_rank_where_they_can_be(tmp_path: Path) -> None:
    path = write_prompts(tmp_path / "s", [3, 2, 5, 4, 1, 1, 2])
    feed = feed_of(path, batch=12, repeats=3)
    for rank in range(4):
        batch = feed.batch(5, rank=rank, world_size=4)
        assert batch.input_ids.shape == (3, 5) and (batch.input_ids == batch.input_ids[0]).all()


@pytest.mark.parametrize("rows", [{}, {"repeats": 3}, {"repeats": 2, "padding": "right"}])
def test_a_feed_of_prompts_restores_anywhere(tmp_path: Path, rows: dict[str, Any]) -> None:
    path = write_prompts(tmp_path / "s", [3, 2, 5, 4, 1, 1, 2])
    check_resume(lambda: feed_of(path, batch=6, **rows), steps=9)


def test_a_run_goes_on_in_mid_epoch_on_another_number_of_ranks(tmp_path: Path) -> None:
    path = write_prompts(tmp_path / "s", [3, 2, 5, 4, 1, 1, 2])
    whole = feed_of(path, batch=6, repeats=2)
    first = feed_of(path, batch=6, repeats=2)
    stream = first.stream(rank=1, world_size=2, prefetch=2, extra=("records",))
    for _ in range(3):
        next(stream)
    state = json.loads(json.dumps(first.state_dict()))
    parts = []
    for rank in range(3):
        other = feed_of(path, batch=6, repeats=2)
        other.load_state_dict(state)
        parts.append(next(other.stream(rank=rank, world_size=3, extra=("records",))))
    assert [part.step for part in parts] == [3, 3, 3]
    rows = np.concatenate([part.input_ids for part in parts])
    assert (rows == whole.batch(3).input_ids).all()
    assert [item for part in parts for item in part.records or []] == whole.records(3)


def test_weights_changed_on_the_way_hold_by_groups(tmp_path: Path) -> None:
    paths = [write_prompts(tmp_path / name, [3, 2, 5, 4]) for name in "ab"]
    feed = feed_of(*paths, batch=8, repeats=4)
    feed.step = 3
    feed.change_weights({"s0": 1})
    assert set(feed.batch(3).source_ids.tolist()) == {0}
    again = feed_of(*paths, batch=8, repeats=4)
    again.load_state_dict(feed.state_dict())
    for step in range(8):
        assert (again.batch(step).input_ids == feed.batch(step).input_ids).all()
    shown = [feed.locate(step) for step in range(8)]
    counts = np.bincount(np.concatenate([located.source for located in shown]), minlength=2)
    assert counts.tolist() == feed.order.counts(64).tolist()
    assert counts.sum() == 64


@pytest.mark.parametrize("changed", [{"repeats": 3}, {"padding": "right"}])
def test_a_state_of_other_prompts_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = write_prompts(tmp_path / "s", [3, 2, 5])
    state = feed_of(path, repeats=2).state_dict()
    with pytest.raises(MismatchError, match=f"plans.0.{next(iter(changed))}"):
        feed_of(path, **{"repeats": 2, **changed}).load_state_dict(state)


def test_settings_of_prompts_are_no_part_of_the_identity_of_others(tmp_path: Path) -> None:
    """States of runs that were saved before there were prompts go on to fit."""
    write_store(tmp_path / "s", [9, 9])
    feed = Feed(
        Recipe(seq_len=4, global_batch_size=2, sources=[Source(name="a", path=tmp_path / "s")])
    )
    assert not {"padding", "repeats"} & set(feed.identity["recipe"]["sources"][0])


def test_a_run_of_max_epochs_ends_with_whole_groups(tmp_path: Path) -> None:
    path = write_prompts(tmp_path / "s", [3, 2, 5])
    feed = feed_of(path, batch=4, repeats=2, max_epochs=3)
    assert feed.ending is not None
    assert (feed.num_steps, dict(feed.ending.unshown)) == (4, {"s0": 2})
    assert feed.epoch_of(3) == {"s0": 2.0}


@pytest.mark.parametrize("sidecar", [None, "turns", "mask"])
def test_a_store_with_trained_targets_is_refused(tmp_path: Path, sidecar: str | None) -> None:
    write_store(tmp_path / "s", [9, 9, 9], sidecar=sidecar)
    with pytest.raises(StoreError, match=r"trained targets, so they are not prompts.*prompts=True"):
        feed_of(tmp_path / "s")


def test_a_split_without_a_prompt_that_fits_is_refused(tmp_path: Path) -> None:
    path = write_prompts(tmp_path / "s", [9, 0])
    with pytest.raises(ConfigError, match=r"no prompt fits.*1 longer ones of 2.*keep_last"):
        feed_of(path)


@pytest.mark.parametrize("truncation", ["split", "keep_first", "whole_turns"])
def test_other_ways_of_cutting_are_refused(tmp_path: Path, truncation: Any) -> None:
    path = write_prompts(tmp_path / "s", [3])
    with pytest.raises(ConfigError, match=r"prompts are not cut so.*keep_last"):
        plan_prompts(open_store(path)["train"], 5, truncation=truncation)


def test_a_batch_that_would_cut_a_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not divide into the repeats.*multiple of 4.*6"):
        feed_of(tmp_path / "s", batch=6, repeats=4)


def test_sources_of_different_repeats_are_refused() -> None:
    sources = [
        Source(name="a", path="a", rows="prompts", repeats=2),
        Source(name="b", path="b", rows="packed"),
    ]
    with pytest.raises(ConfigError, match=r"sources with different repeats.*a 2, b 1"):
        Recipe(seq_len=4, global_batch_size=4, sources=sources)


@pytest.mark.parametrize("setting", [{"repeats": 2}, {"padding": "left"}])
def test_settings_of_prompts_are_refused_for_other_rows(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"does not concern its rows.*rows of prompts"):
        Source(name="a", path="a", rows="packed", **setting)


def test_rows_of_several_documents_have_no_record_of_their_own(tmp_path: Path) -> None:
    turns = np.zeros(1, TURN)
    turns["length"], turns["weight"] = 2, 1
    with StoreWriter(tmp_path / "s", vocab_size=9, turns=True, records=True) as writer:
        for number in range(3):
            writer.add([1, 2], turns=turns, record={"n": number})
    packed = Source(name="a", path=tmp_path / "s", rows="packed", shuffle=False)
    feed = Feed(Recipe(seq_len=3, global_batch_size=2, passes=1, sources=[packed]))
    assert [record for record in feed.records(0) if record is not None] == [{"n": 2}]
    episodes = Source(name="a", path=tmp_path / "s", rows="episodes", shuffle=False)
    feed = Feed(Recipe(seq_len=3, global_batch_size=3, passes=1, sources=[episodes]))
    assert feed.records(0) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_the_commands_plan_and_explain_tell_of_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prompts(tmp_path / "s", [3, 2, 9])
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'seq_len = 5\nglobal_batch_size = 4\nsteps = 3\n[[sources]]\nname = "math"\npath = "s"\n'
        'rows = "prompts"\nrepeats = 2\npadding = "right"\n'
    )
    assert main(["plan", str(recipe), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["sources"][0]["ledger"]["too_long"] == 1
    assert main(["plan", str(recipe)]) == 0
    assert "math" in capsys.readouterr().out
    assert main(["explain", str(recipe), "0", "--row", "0"]) == 0
    assert 'record {"answer":' in capsys.readouterr().out


@pytest.mark.parametrize("rows", ["windows", "document_windows", "episodes", "packed", "pairs"])
def test_other_rows_over_a_store_of_prompts_say_which_rows_it_has(
    tmp_path: Path, rows: Any
) -> None:
    store = write_prompts(tmp_path / "s", [3, 4, 5])
    source = Source(name="s", path=store, rows=rows)
    with pytest.raises(ConfigError, match=r'of prompts.* give the source rows="prompts"'):
        Feed(Recipe(seq_len=5, global_batch_size=1, sources=[source]))


def test_where_tells_the_tokens_of_each_prompt_from_its_own_first_one(tmp_path: Path) -> None:
    path = write_prompts(tmp_path / "s", [3, 7, 4])
    feed = feed_of(path, batch=3, recipe={"passes": 1}, truncation="keep_last")
    hits = [feed.where("s0", document)[0] for document in range(3)]
    assert [(hit.start, hit.stop) for hit in hits] == [(0, 3), (2, 7), (0, 4)]
