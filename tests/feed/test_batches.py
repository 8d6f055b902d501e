"""Batches are the rows the corpus must give, slot by slot, for any world size and microbatch."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import (
    Doc,
    Row,
    check_row,
    episode_rows,
    num_targets,
    recipe_of,
    scratch,
    window_rows,
    write_store,
)

from tokenreel.errors import ConfigError, DamageError, EndlessError
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Mode, Phase, Recipe, Source, Truncation
from tokenreel.rows.kinds import Rows
from tokenreel.rows.row_plan import RowPlan
from tokenreel.testing import equal

FIELDS = ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids")


def rows_of(kind: str, documents: list[Doc], seq_len: int) -> list[Row]:
    if kind == "episodes":
        return episode_rows(documents, seq_len)
    return window_rows(documents, seq_len, by_document=kind == "document_windows")


@given(
    kind=st.sampled_from(["windows", "document_windows", "episodes"]),
    sidecar=st.sampled_from([None, "weights", "mask", "turns"]),
    mode=st.sampled_from(["mmap", "pread"]),
    lengths=st.lists(st.integers(0, 25), min_size=2, max_size=9),
    seq_len=st.integers(1, 12),
    shard_tokens=st.integers(4, 60),
    pad_id=st.integers(0, 70000),
    seed=st.integers(0, 999),
)
@settings(max_examples=15, deadline=None)
def test_an_epoch_shows_every_row_slot_by_slot(
    kind: Rows,
    sidecar: str | None,
    mode: Mode,
    lengths: list[int],
    seq_len: int,
    shard_tokens: int,
    pad_id: int,
    seed: int,
) -> None:
    shard_tokens = max(shard_tokens, 25) if sidecar == "turns" else shard_tokens
    with scratch() as folder:
        documents = write_store(
            folder / "s", [*lengths, 6], sidecar=sidecar, shard_tokens=shard_tokens, seed=seed
        )
        expected = rows_of(kind, documents, seq_len)
        truncation: Truncation | None = "keep_first" if kind == "episodes" else None
        source = Source(
            name="s", path=folder / "s", rows=kind, shuffle=False, truncation=truncation, mode=mode
        )
        recipe = recipe_of(source, seq_len=seq_len, global_batch_size=3, pad_id=pad_id)
        if not expected:
            with pytest.raises(ConfigError, match="so there are no rows"):
                Feed(recipe)
            return
        feed = Feed(recipe)
        for step in range(-(-len(expected) // 3) + 1):
            batch = feed.batch(step)
            assert batch.loss_mask.any(axis=-1).all()  # property 9
            for number in range(3):
                check_row(
                    batch, number, expected[(3 * step + number) % len(expected)], pad_id=pad_id
                )
            check_segments(batch)
        check_epoch(feed.plans[0], [feed.batch(step) for step in range(len(expected))])


def check_segments(batch: Batch) -> None:
    """Property 10, from the fields alone."""
    segments, positions, labels = batch.segment_ids, batch.position_ids, batch.labels
    begins = np.ones(segments.shape, bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    assert (positions[begins] == 0).all()
    goes_on = ~begins[:, 1:] & (segments[:, 1:] > 0)
    assert (np.diff(positions, axis=1)[goes_on] == 1).all()
    # No target crosses segments: a slot whose right neighbour begins another has none.
    assert (labels[:, :-1][begins[:, 1:]] == -100).all()
    assert (labels[segments == 0] == -100).all()
    trained = batch.loss_weights > 0
    assert np.array_equal(trained, labels != -100)
    inside = trained[:, :-1]
    assert np.array_equal(labels[:, :-1][inside], batch.input_ids[:, 1:][inside])
    assert np.array_equal(batch.attention_mask, segments > 0)
    borders = batch.cu_seqlens()
    assert borders.dtype == np.int32
    assert borders[0] == 0
    assert borders[-1] == segments.size
    assert (np.diff(borders) > 0).all()
    assert set(range(0, segments.size, segments.shape[1])) <= set(borders.tolist())
    assert len(borders) == np.count_nonzero(begins) + 1


def check_epoch(plan: RowPlan, batches: list[Batch]) -> None:
    """Property 22: the ledger is what an epoch of batches shows, counted slot by slot."""
    size = len(batches[0].input_ids)
    rows = [(b.loss_weights[i], b.segment_ids[i]) for b in batches for i in range(size)]
    rows = rows[: plan.num_rows]
    ledger = plan.ledger
    assert ledger["trained"] == sum(np.count_nonzero(weights) for weights, _ in rows)
    # The last token of a full row is a label only: at most one slot a row is not an input.
    shown = sum(np.count_nonzero(segments) for _, segments in rows)
    assert shown <= ledger["placed"] + ledger["overlap"] <= shown + len(rows)


MIXED: dict[str, Any] = {
    "phases": (Phase(start_step=2, weights={"web": 1, "chat": 3, "books": 2}, ramp_steps=3),),
    "seed": 5,
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("mixed")
    write_store(folder / "web", [50, 30, 70, 9], shard_tokens=64)
    write_store(folder / "chat", [12, 25, 3, 18, 7], sidecar="turns", first_token=1000)
    write_store(folder / "books", [40, 2, 1, 33], shard_tokens=20, first_token=2000)
    sources = (
        Source(name="web", path=folder / "web", weight=0.5),
        Source(name="chat", path=folder / "chat", rows="episodes", weight=0.3),
        Source(name="books", path=folder / "books", rows="document_windows", weight=0.2),
    )
    return recipe_of(*sources, seq_len=8, global_batch_size=24, **MIXED)


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def test_the_parts_of_all_ranks_are_the_global_batch_for_every_world(mixed: Recipe) -> None:
    for grad_accum in (1, 2, 4):
        feed = Feed(replace(mixed, grad_accum=grad_accum))
        whole = Feed(mixed).batch(3)
        for world_size in divisors(24 // grad_accum):
            parts = [feed.batch(3, rank=rank, world_size=world_size) for rank in range(world_size)]
            for name in FIELDS:
                joined = np.concatenate([getattr(p, name).reshape(-1, 8) for p in parts])
                assert np.array_equal(joined, getattr(whole, name))
                per_rank = 24 // world_size // grad_accum
                shape = (grad_accum, per_rank, 8) if grad_accum > 1 else (per_rank, 8)
                assert getattr(parts[0], name).shape == shape


def test_a_batch_does_not_depend_on_what_was_asked_before(mixed: Recipe) -> None:
    fresh = [Feed(mixed).batch(step) for step in range(8)]
    feed = Feed(mixed)
    for step in (7, 0, 3, 3, 1, 6, 2, 5, 4):
        assert equal(feed.batch(step), fresh[step])


def test_the_memory_of_an_old_batch_gives_the_same_batch(mixed: Recipe) -> None:
    feed = Feed(mixed)
    expected = [feed.batch(step) for step in range(4)]
    lent = feed.batch(9)
    for step in range(4):
        lent = feed.batch(step, out=lent)
        assert equal(lent, expected[step])


def test_memory_of_another_shape_is_refused(mixed: Recipe) -> None:
    feed = Feed(mixed)
    with pytest.raises(ConfigError, match="a batch cannot be put into this memory"):
        feed.batch(1, rank=0, world_size=2, out=feed.batch(0))


def test_memory_that_would_hold_something_else_is_refused(mixed: Recipe) -> None:
    feed = Feed(mixed)
    batch = feed.batch(0)
    read_only = batch.labels.copy()
    read_only.flags.writeable = False
    for name, array, fault in (
        ("input_ids", batch.input_ids.astype(np.float64), r"float64 \(\d+, 8\)"),
        ("input_ids", batch.input_ids.astype(np.int32), r"int32 \(\d+, 8\)"),
        ("labels", read_only, "read-only"),
        ("labels", np.repeat(batch.labels, 2, axis=1)[:, ::2], "not contiguous"),
        ("loss_weights", batch.loss_weights[:, :4].copy(), r"float32 \(\d+, 4\)"),
    ):
        changed: dict[str, Any] = {name: array}
        with pytest.raises(ConfigError, match=f"cannot be put into this memory .*got .*{fault}"):
            feed.batch(1, out=replace(batch, **changed))


def test_a_batch_says_which_fields_it_shares_with_others(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [100])
    feed = Feed(recipe_of(Source(name="a", path=tmp_path / "s"), seq_len=8))
    names = {"segment_ids", "position_ids", "loss_weights"}
    one, other = feed.batch(0), feed.batch(1)
    assert one.shared == other.shared == names
    for name in names:
        assert np.shares_memory(getattr(one, name), getattr(other, name))
    masked = feed.batch(0, extra=("attention_mask",))
    assert masked.shared == {*names, "attention_mask"}
    assert not np.shares_memory(one.input_ids, other.input_ids)
    again = feed.batch(2, out=one)
    assert again.input_ids is one.input_ids and equal(again, feed.batch(2))
    packed = Source(name="a", path=tmp_path / "s", rows="packed")
    assert Feed(recipe_of(packed, seq_len=8)).batch(0).shared == frozenset()


def test_segments_that_are_read_only_and_not_shared_are_refused_as_memory(mixed: Recipe) -> None:
    """They were once taken for shared ones, because numpy's bit says the same of both."""
    feed = Feed(mixed)
    batch = feed.batch(0)
    segments = batch.segment_ids.copy()
    segments.flags.writeable = False
    with pytest.raises(ConfigError, match=r"cannot be put into this memory .*read-only"):
        feed.batch(1, out=replace(batch, segment_ids=segments))


def test_threads_may_share_a_feed(mixed: Recipe) -> None:
    from concurrent.futures import ThreadPoolExecutor

    expected = [Feed(mixed).batch(step) for step in range(30)]
    feed = Feed(mixed)
    with ThreadPoolExecutor(4) as pool:
        assert equal(list(pool.map(feed.batch, range(30))), expected)


def test_numpy_alone_gives_the_batches_of_the_kernels(mixed: Recipe, tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    program = (
        "import sys, hashlib, numpy as np\n"
        "from tokenreel import native\n"
        "from tokenreel.feed.feed import Feed\n"
        "from tokenreel.feed.recipe import Phase, Recipe, Source\n"
        f"feed = Feed({mixed!r})\n"
        "print(native.extension() is not None)\n"
        "digest = hashlib.sha256()\n"
        "for step in range(12):\n"
        "    batch = feed.batch(step)\n"
        "    for name in ('input_ids', 'labels', 'loss_weights', 'segment_ids', 'position_ids'):\n"
        "        digest.update(np.ascontiguousarray(getattr(batch, name)).tobytes())\n"
        "print(digest.hexdigest())\n"
    ).replace("PosixPath", "__import__('pathlib').Path")
    answers = []
    for setting in ("1", "0"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, "TOKENREEL_NATIVE": setting},
        )
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout.split())
    assert [native_used for native_used, _ in answers] == ["True", "False"]
    assert answers[0][1] == answers[1][1]


def test_denominators_are_of_the_global_step_and_exact(mixed: Recipe) -> None:
    feed = Feed(mixed)
    for step in range(6):
        whole = feed.batch(step)
        total = float(whole.loss_weights.astype(np.float64).sum())
        assert feed.weight_sum(step) == total
        for world_size, grad_accum in ((1, 1), (2, 4), (6, 2), (8, 3)):
            split = Feed(replace(mixed, grad_accum=grad_accum))
            parts = [split.batch(step, rank=r, world_size=world_size) for r in range(world_size)]
            assert split.weight_sum(step) == total
            # Property 13: losses summed in any split and divided by it give one mean.
            losses = [
                float((p.loss_weights * (p.labels % 97)).astype(np.float64).sum()) for p in parts
            ]
            expected = float((whole.loss_weights * (whole.labels % 97)).astype(np.float64).sum())
            assert sum(losses) / total == pytest.approx(expected / total, rel=1e-12)


def test_another_pad_id_changes_inputs_in_padding_only(mixed: Recipe) -> None:
    end_of_turn = 1003  # a token that occurs, so that a mask by value would show
    one, other = Feed(mixed), Feed(replace(mixed, pad_id=end_of_turn))
    for step in range(5):
        a, b = one.batch(step), other.batch(step)
        for name in FIELDS[1:]:
            assert np.array_equal(getattr(a, name), getattr(b, name))
        padding = a.segment_ids == 0
        assert padding.any()
        assert (b.input_ids[padding] == end_of_turn).all()
        assert np.array_equal(a.input_ids[~padding], b.input_ids[~padding])


def test_each_row_of_each_source_comes_once_an_epoch(mixed: Recipe) -> None:
    feed = Feed(mixed)
    seen: dict[tuple[str, int], list[bytes]] = {}
    for step in range(30):
        batch = feed.batch(step)
        for row in feed.explain(step).rows:
            shown = batch.input_ids[row.row].tobytes()
            seen.setdefault((row.source, row.epoch), []).append(shown)
    for source, plan in zip(mixed.sources, feed.plans, strict=True):
        first, last = seen[source.name, 0], seen[source.name, 1]
        assert len(first) == len(set(first)) == plan.num_rows
        assert set(last) <= set(first)


def test_epochs_lengths_and_steps(mixed: Recipe) -> None:
    feed = Feed(mixed)
    assert feed.epoch_of(0) == {"web": 0.0, "chat": 0.0, "books": 0.0}
    counts = feed.order.counts(10 * 24)
    expected = [int(n) / plan.num_rows for n, plan in zip(counts, feed.plans, strict=True)]
    assert list(feed.epoch_of(10).values()) == expected
    assert feed.num_steps is None
    with pytest.raises(
        EndlessError, match="a run without end has no length; give the recipe steps"
    ):
        len(feed)
    assert len(Feed(replace(mixed, steps=7))) == 7
    assert [b.step for b in Feed(replace(mixed, steps=7))] == list(range(7))


def test_rows_far_out_come_at_once(mixed: Recipe) -> None:
    feed = Feed(mixed)
    batch = feed.batch(10**10)
    assert batch.input_ids.shape == (24, 8)
    assert feed.explain(10**10).rows[0].epoch > 10**8


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int32", "int64"])
def test_foreign_dtypes_come_out_as_int64(tmp_path: Path, dtype: str) -> None:
    tokens = np.arange(100, 0, -1)
    tokens.astype(dtype).tofile(tmp_path / "train.bin")
    source = Source(name="a", path=tmp_path / "train.bin", dtype=dtype, shuffle=False)
    batch = Feed(recipe_of(source, seq_len=33, global_batch_size=3)).batch(0)
    assert batch.input_ids.dtype == np.int64
    assert batch.input_ids.ravel().tolist() == tokens[:99].tolist()
    assert batch.labels.ravel().tolist() == tokens[1:].tolist()


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_mask_with_a_weight_that_is_none_is_refused(tmp_path: Path, bad: float) -> None:
    np.arange(20, dtype="<u4").tofile(tmp_path / "tokens.bin")
    np.array([[0, 20]], "<u8").tofile(tmp_path / "episodes.idx")
    mask = np.ones(20, "<f4")
    mask[11] = bad
    mask.tofile(tmp_path / "mask.bin")
    source = Source(name="a", path=tmp_path, rows="episodes")
    feed = Feed(recipe_of(source, seq_len=30, global_batch_size=1))
    with pytest.raises(DamageError, match="the weight of token 11 is negative or not a number"):
        feed.batch(0)


@pytest.mark.parametrize("step", [-1])
def test_steps_before_the_first_are_refused(mixed: Recipe, step: int) -> None:
    with pytest.raises(ConfigError, match=r"bad step \(expected >= 0, got -1\)"):
        Feed(mixed).batch(step)


def test_a_source_that_has_run_out_ends_the_run_before_that_step(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [8 * 10 + 1])
    source = Source(name="few", path=tmp_path / "s", max_epochs=1)
    feed = Feed(recipe_of(source, seq_len=8, global_batch_size=3))
    message = (
        "the run ends after 3 steps: source 'few' runs out in the next; rows not shown: 1 of 'few'"
    )
    assert len(feed) == 3
    with pytest.warns(UserWarning) as said:
        assert [batch.step for batch in feed] == [0, 1, 2]
    assert [str(warning.message) for warning in said] == [message]
    with pytest.raises(ConfigError) as caught:
        feed.batch(3)
    assert str(caught.value) == (
        f"{message} (expected a step below 3, got 3); end earlier, or allow more epochs"
    )
    assert feed.ending is not None and feed.ending.unshown == {"few": 1}


def test_nothing_is_said_where_every_row_was_shown(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [8 * 12 + 1])
    source = Source(name="few", path=tmp_path / "s", max_epochs=2)
    feed = Feed(recipe_of(source, seq_len=8, global_batch_size=4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(feed)) == len(feed) == 6


def test_in_a_mixture_the_first_to_run_out_ends_the_run(tmp_path: Path) -> None:
    write_store(tmp_path / "a", [8 * 50 + 1])
    write_store(tmp_path / "b", [8 * 10 + 1])
    sources = [Source(name=name, path=tmp_path / name, max_epochs=1) for name in "ab"]
    feed = Feed(recipe_of(*sources, seq_len=8, global_batch_size=4))
    assert feed.ending is not None
    assert (feed.ending.steps, feed.ending.source) == (5, "b")  # 10 rows of each
    assert feed.ending.unshown == {"a": 40, "b": 0}
    feed.change_weights({"a": 1.0})
    assert feed.ending.source == "a"
    assert feed.ending.steps == 12
    with pytest.warns(UserWarning, match="2 of 'a', 10 of 'b'"):
        assert len(list(feed)) == len(feed) == 12
    assert len(Feed(replace(feed.recipe, steps=3))) == 3


@pytest.mark.parametrize("prefetch", [0, 2, 9])
def test_an_end_that_is_put_off_is_seen_whatever_was_made_ahead(
    tmp_path: Path, prefetch: int
) -> None:
    write_store(tmp_path / "a", [8 * 50 + 1])
    write_store(tmp_path / "b", [8 * 10 + 1])
    sources = [Source(name=name, path=tmp_path / name, max_epochs=1) for name in "ab"]
    feed = Feed(recipe_of(*sources, seq_len=8, global_batch_size=4))
    steps = []
    with pytest.warns(UserWarning, match="source 'a' runs out"):
        for batch in feed.stream(prefetch=prefetch):
            steps.append(batch.step)
            if batch.step == 3:
                feed.change_weights({"a": 1.0})
    assert steps == list(range(len(feed))) and len(steps) > 5


def test_more_epochs_than_numbers_are_as_good_as_no_limit(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [81])
    source = Source(name="s", path=tmp_path / "s")
    endless = Feed(recipe_of(source))
    limited = Feed(recipe_of(replace(source, max_epochs=2**63 - 1)))
    assert equal(endless.batch(9), limited.batch(9))


def test_targets_of_an_epoch_are_those_of_the_rows(tmp_path: Path) -> None:
    documents = write_store(tmp_path / "s", [9, 30, 4], sidecar="weights")
    feed = Feed(recipe_of(Source(name="s", path=tmp_path / "s"), seq_len=6, global_batch_size=1))
    expected = window_rows(documents, 6)
    counted = sum(int(feed.batch(step).loss_mask.sum()) for step in range(len(expected)))
    assert counted == sum(map(num_targets, expected))


@given(
    lengths=st.lists(st.integers(2, 90), min_size=1, max_size=4),
    shard_tokens=st.integers(5, 60),
    seq_len=st.integers(1, 12),
    shuffle=st.booleans(),
    start=st.integers(0, 10**6),
)
@settings(max_examples=10, deadline=None)
def test_the_fast_way_of_plain_windows_gives_what_the_general_way_gives(
    lengths: list[int], shard_tokens: int, seq_len: int, shuffle: bool, start: int
) -> None:
    with scratch() as folder:
        write_store(folder / "a", lengths, shard_tokens=shard_tokens)
        np.arange(-70, 70, dtype="<i4").tofile(folder / "b.bin")
        fast, general = (
            Feed(
                recipe_of(
                    Source(name="a", path=folder / "a", shuffle=shuffle, mode=mode),
                    Source(name="b", path=folder / "b.bin", dtype="int32", weight=0.4, mode=mode),
                    seq_len=seq_len,
                    global_batch_size=4,
                )
            )
            for mode in ("mmap", "pread")
        )
        for step in (*range(12), start, start + 1):
            assert equal(fast.batch(step), general.batch(step))
