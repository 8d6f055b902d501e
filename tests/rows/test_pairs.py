"""Rows of pairs: whole groups, each answer a segment, whatever the packing and the ranks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import Feed, Recipe, Source, StoreWriter, build, open_store
from tokenreel.cli.main import main
from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.rows.pairs import common_length, plan_pairs
from tokenreel.rows.plan_cache import plan_cache
from tokenreel.testing import check_resume
from tokenreel.text.turns import TURN
from tokenreel.view.row_facts import row_facts
from tokenreel.view.subject import subject_of

VOCABULARY = 50_000
Answer = tuple[int, int]  # tokens of its prompt, and of itself
Groups = list[list[Answer]]
LABELS = {1: [1], 2: [1, 2]}  # else ranked


def write_groups(path: Path, groups: Groups, *, first_id: int = 1, **options: Any) -> Path:
    """Write groups whose tokens count up through the store, so that each says where it is from."""
    with StoreWriter(path, vocab_size=VOCABULARY, turns=True, groups=True, **options) as writer:
        token = first_id
        for answers in groups:
            turns, start = np.zeros(2 * len(answers), TURN), 0
            labels = LABELS.get(len(answers), [0] * len(answers))
            for number, ((asked, answered), label) in enumerate(zip(answers, labels, strict=True)):
                turns[2 * number] = (start, asked, 0, 0, 0.0, 1, number, label)
                turns[2 * number + 1] = (start + asked, answered, 1, 0, 1.0, 2, number, label)
                start += asked + answered
            writer.add(np.arange(token, token + start), turns=turns)
            token += start
    return path


def expected_answers(
    groups: Groups, *, capacity: int, limit: int, truncation: str | None
) -> list[list[tuple[list[int], int]]]:
    """Return tokens and label of each answer of each group that is shown, one by one."""
    shown, token = [], 1
    for answers in groups:
        labels = LABELS.get(len(answers), [0] * len(answers))
        lengths = [asked + answered for asked, answered in answers]
        most = limit
        if truncation is not None:
            while sum(min(length, most) for length in lengths) > capacity:
                most -= 1
        group, is_kept = [], True
        for (asked, _), length, label in zip(answers, lengths, labels, strict=True):
            tokens, trained = list(range(token, token + length)), [False] * (asked + 1)
            trained += [True] * (length - asked - 1)
            if truncation is None:
                is_kept &= length <= limit
            else:
                part = slice(0, most) if truncation == "keep_first" else slice(-most, None)
                tokens, trained = tokens[part], trained[part]
            is_kept &= any(trained[1:])
            group.append((tokens, label))
            token += length
        if is_kept and sum(len(tokens) for tokens, _ in group) <= capacity:
            shown.append(group)
    return shown


ANSWERS = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 12)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ANSWERS, min_size=1, max_size=12),
    st.integers(8, 60),
    st.sampled_from([None, "keep_first", "keep_last"]),
    st.sampled_from(["best_fit", "first_fit", "sequential", "single"]),
    st.integers(2, 30) | st.none(),
    st.integers(1, 5),
)
def test_every_group_that_fits_stands_whole_in_one_row(
    tmp_path_factory: pytest.TempPathFactory,
    groups: Groups,
    seq_len: int,
    truncation: str | None,
    packing: str,
    answer_tokens: int | None,
    block_docs: int,
) -> None:
    path = write_groups(tmp_path_factory.mktemp("g") / "s", groups, shard_bytes=200)
    split = open_store(path)["train"]
    limit = min(answer_tokens or seq_len + 1, seq_len + 1)
    wanted = expected_answers(groups, capacity=seq_len + 1, limit=limit, truncation=truncation)
    given: dict[str, Any] = {"packing": packing, "truncation": truncation, "answer_tokens": limit}
    if not wanted:
        with pytest.raises(ConfigError, match="no document can be trained on"):
            plan_pairs(split, seq_len, block_docs=block_docs, **given)
        return
    plan = plan_pairs(split, seq_len, block_docs=block_docs, **given)
    found = []
    for row in range(plan.num_rows):
        pieces, answers = plan.pieces(np.array([row])), plan.answers(np.array([row]))
        assert pieces.first.all() and int(pieces.length.sum()) <= seq_len + 1
        assert pieces.document.tolist() == answers.document.tolist()
        assert pieces.length.tolist() == answers.length.tolist()
        shown = [
            split.shards[shard].read(start, start + length).tolist()
            for shard, start, length in zip(pieces.shard, pieces.start, pieces.length, strict=True)
        ]
        borders = [0, *(np.flatnonzero(np.diff(answers.document)) + 1).tolist(), len(shown)]
        labelled = list(zip(shown, answers.label.tolist(), strict=True))
        found += [labelled[a:b] for a, b in pairwise(borders)]
        assert packing != "single" or len(borders) == 2
    assert sorted(found) == sorted(wanted)
    ledger = plan.ledger
    assert ledger["groups"] == len(wanted)
    assert ledger["placed"] == sum(len(tokens) for group in wanted for tokens, _ in group)
    assert ledger["placed"] + ledger["truncated"] + ledger["dropped"] == split.num_tokens
    left_out = ledger["long_groups"] + ledger["untrained_documents"] + ledger["short_documents"]
    assert left_out == len(groups) - len(wanted)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 120))
def test_the_common_length_is_the_largest_that_fits(lengths: list[int], capacity: int) -> None:
    def total(most: int) -> int:
        return sum(min(length, most) for length in lengths)

    most = common_length(np.array(lengths), capacity)
    assert total(most) <= capacity
    assert total(most + 1) > capacity or most >= max(lengths)


PAIRS: Groups = [[(n % 5 + 1, n % 7 + 2), (n % 5 + 1, n % 3 + 2)] for n in range(40)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_groups(tmp_path_factory.mktemp("pairs") / "s", PAIRS, shard_bytes=500)


def recipe(path: Path, **options: Any) -> Recipe:
    source = {key: options.pop(key) for key in ("packing", "answer_tokens") if key in options}
    given: dict[str, Any] = {"seq_len": 40, "global_batch_size": 6, "seed": 5, **options}
    return Recipe(sources=[Source(name="p", path=path, rows="pairs", **source)], **given)


def groups_of(batch: Batch) -> list[list[tuple[list[int], int]]]:
    """Return the groups of a batch: tokens of inputs and label of each answer."""
    assert batch.group_ids is not None and batch.answer_labels is not None
    width = batch.segment_ids.shape[-1]
    arrays = (batch.segment_ids, batch.group_ids, batch.answer_labels, batch.input_ids)
    found: dict[int, list[tuple[list[int], int]]] = {}
    for segments, groups, labels, ids in zip(*(a.reshape(-1, width) for a in arrays), strict=True):
        assert ((groups >= 0) == (segments > 0)).all()
        for segment in range(1, int(segments.max()) + 1):
            here = segments == segment
            (group,), (label,) = set(groups[here].tolist()), set(labels[here].tolist())
            found.setdefault(group, []).append((ids[here].tolist(), label))
    assert sorted(found) == list(range(len(found)))
    return [found[group] for group in sorted(found)]


def test_groups_are_numbered_through_the_batch_and_labelled(store: Path) -> None:
    groups = groups_of(Feed(recipe(store)).batch(0))
    assert len(groups) > 6
    assert all([label for _, label in group] == [1, 2] for group in groups)


@pytest.mark.parametrize("world_size", [2, 3, 4, 7])
def test_any_number_of_ranks_shows_the_same_groups_and_parts_none(
    store: Path, world_size: int
) -> None:
    feed = Feed(recipe(store, grad_accum=2))
    for step in range(4):
        whole = groups_of(feed.batch(step))
        parts = [
            groups_of(feed.batch(step, rank=rank, world_size=world_size))
            for rank in range(world_size)
        ]
        assert [group for part in parts for group in part] == whole
        assert all(len(group) == 2 for group in whole)


def test_a_feed_of_pairs_resumes_at_every_step(store: Path) -> None:
    check_resume(lambda: Feed(recipe(store)), steps=7)
    feed = Feed(recipe(store))
    state = {**feed.state_dict(), "step": 3}
    other = Feed(recipe(store, grad_accum=3))
    other.load_state_dict(state)
    assert groups_of(next(iter(other))) == groups_of(feed.batch(3))


def test_an_evaluation_shows_every_group_once(store: Path) -> None:
    feed = Feed(recipe(store, passes=1))
    shown = [group for batch in feed for group in groups_of(batch)]
    firsts = sorted(group[0][0][0] for group in shown)
    sizes = [sum(map(sum, group)) for group in PAIRS]
    assert firsts == np.cumsum([1, *sizes[:-1]]).tolist()
    ledger = feed.plans[0].ledger
    assert sum(feed.denominators(step).samples for step in range(len(feed))) == ledger["segments"]


def test_the_kernel_makes_the_rows_that_steps_make(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = [Feed(recipe(store)).batch(step) for step in range(3)]
    monkeypatch.setenv("TOKENREEL_NATIVE", "0")
    from tokenreel import native

    native.extension.cache_clear()
    try:
        assert native.extension() is None
        slow = [Feed(recipe(store)).batch(step) for step in range(3)]
    finally:
        monkeypatch.undo()
        native.extension.cache_clear()
    for one, other in zip(fast, slow, strict=True):
        for name in ("input_ids", "labels", "segment_ids", "position_ids", "loss_weights"):
            assert (getattr(one, name) == getattr(other, name)).all()
        assert groups_of(one) == groups_of(other)


def test_padded_rows_hold_one_answer_each_chosen_and_rejected_side_by_side(store: Path) -> None:
    feed = Feed(recipe(store, packing="single"))
    batch = feed.batch(2)
    padded = batch.padded(width=20, pad_id=9)
    assert padded.input_ids.shape == (12, 20)
    assert padded.answer_labels is not None and padded.group_ids is not None
    assert padded.answer_labels[:, 0].tolist() == [1, 2] * 6
    assert padded.group_ids[:, 0].tolist() == np.repeat(np.arange(6), 2).tolist()
    assert groups_of(padded) == groups_of(batch)
    assert (padded.input_ids[~padded.attention_mask] == 9).all()
    assert (padded.position_ids == np.arange(20) * padded.attention_mask).all()
    for name in ("labels", "loss_weights"):
        packed_values = getattr(batch, name)[batch.segment_ids > 0]
        assert (getattr(padded, name)[padded.segment_ids > 0] == packed_values).all()
    assert (padded.labels[~padded.attention_mask] == -100).all()


def test_padded_microbatches_have_the_rows_of_the_largest(store: Path) -> None:
    batch = Feed(recipe(store, grad_accum=3)).batch(0)
    padded = batch.padded()
    assert padded.input_ids.shape[0] == 3 and padded.input_ids.ndim == 3
    assert batch.group_ids is not None
    counts = [len(set(part[part >= 0].tolist())) * 2 for part in batch.group_ids]
    assert padded.input_ids.shape[1] == max(counts)
    assert [int((part >= 0).sum()) for part in padded.source_ids] == counts
    assert groups_of(padded) == groups_of(batch)
    assert batch.padded(width=50, rows=40).input_ids.shape == (3, 40, 50)


def test_padded_rows_that_are_too_few_or_too_short_are_refused(store: Path) -> None:
    batch = Feed(recipe(store)).batch(0)
    with pytest.raises(ConfigError, match="width is too small"):
        batch.padded(width=3)
    with pytest.raises(ConfigError, match="rows is too small"):
        batch.padded(rows=3)


def test_beside_other_rows_only_those_of_pairs_have_groups(store: Path, tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "web", vocab_size=VOCABULARY) as writer:
        writer.add(range(900))
    sources = [
        Source(name="p", path=store, rows="pairs"),
        Source(name="web", path=tmp_path / "web"),
    ]
    batch = Feed(Recipe(seq_len=40, global_batch_size=8, sources=sources)).batch(0)
    assert batch.group_ids is not None and batch.answer_labels is not None
    web = batch.source_ids == 1
    assert 0 < web.sum() < 8
    assert (batch.group_ids[web] == -1).all() and not batch.answer_labels[web].any()
    assert ((batch.group_ids[~web] >= 0) == (batch.segment_ids[~web] > 0)).all()
    alone = Feed(Recipe(seq_len=40, global_batch_size=2, sources=sources[1:]))
    assert alone.batch(0).group_ids is None
    asked = alone.batch(0, extra=("group_ids",)).group_ids
    assert asked is not None and (asked == -1).all()


def test_explain_and_where_name_the_document_of_the_group(store: Path) -> None:
    feed = Feed(recipe(store))
    hits = feed.where("p", 7, stop_step=20)
    assert [hit.epoch for hit in hits] == list(range(len(hits)))
    both = sum(map(sum, PAIRS[7]))
    for hit in hits:
        assert (hit.start, hit.stop) == (0, both)
        row = feed.explain(hit.step).rows[hit.row]
        shown = [(s.start, s.stop) for s in row.segments if s.document == 7]
        assert shown == [(0, sum(PAIRS[7][0])), (sum(PAIRS[7][0]), both)]


def test_a_plan_on_disk_is_the_plan_that_was_made(store: Path) -> None:
    opened = open_store(store)
    made = plan_pairs(opened["train"], 40, cache=None)
    for _ in range(2):
        kept = plan_pairs(opened["train"], 40, cache=plan_cache(opened))
        assert (kept.labels == made.labels).all() and kept.ledger == made.ledger
        assert (kept.table.positions == made.table.positions).all()
    assert kept.folder is not None
    labels = kept.folder / "labels"
    labels.write_bytes(labels.read_bytes()[::-1])  # it is damaged, so the plan is made again
    again = plan_pairs(opened["train"], 40, cache=plan_cache(opened))
    assert (again.labels == made.labels).all()


def test_rejected_answers_are_never_shown_as_text(store: Path) -> None:
    for rows in ("windows", "document_windows", "episodes", "packed", "prompts"):
        with pytest.raises(
            ConfigError, match=r"""'p': its store holds groups.*rows of pairs.*rows="pairs\""""
        ):
            Feed(
                Recipe(
                    seq_len=8,
                    global_batch_size=2,
                    sources=[Source(name="p", path=store, rows=rows)],
                )
            )


def test_pairs_of_a_store_without_groups_are_refused(tmp_path: Path) -> None:
    built = build(texts=["a b c"], out=tmp_path / "s", tokenizer="byte", progress=False)
    with pytest.raises(ConfigError, match=r"no groups of answers.*pairs=True"):
        Feed(recipe(built.store.path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truncation": "split"}, "answers are not cut so"),
        ({"truncation": "whole_turns"}, "keep_first or keep_last"),
        ({"packing": "tight"}, "unknown packing"),
        ({"answer_tokens": 42}, "2 to 41"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    store: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_pairs(open_store(store)["train"], 40, **options)


def test_groups_that_do_not_fit_are_counted_and_said(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        "seq_len = 14\nglobal_batch_size = 2\nsteps = 3\n[[sources]]\n"
        f'name = "p"\npath = "{store}"\nrows = "pairs"\nanswer_tokens = 12\n'
        'packing = "first_fit"\n'
    )
    assert main(["plan", str(file)]) == 0
    said = capsys.readouterr().out
    ledger = Feed(file).plans[0].ledger
    assert ledger["long_groups"] > 0
    assert f"p: {ledger['groups']} groups of answers" in said
    assert f"p: {ledger['long_groups']} long groups are left out" in said


def test_explain_says_which_answer_a_segment_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = {"prompt": "2+2?", "chosen": "4", "rejected": "5"}
    ranked = {"prompt": "say", "answers": ["best", "good", "bad"]}
    labelled = {"prompt": "3+3?", "completion": "7", "label": False}
    records = [pair, ranked, labelled]
    out = tmp_path / "store"
    build(records, out=out, tokenizer="byte", pairs=True, progress=False)
    source = Source(name="p", path=out, rows="pairs")
    feed = Feed(Recipe(seq_len=400, global_batch_size=1, passes=1, sources=[source]))
    roles = {
        0: ["preferred", "rejected"],
        1: ["rank 1 of 3", "rank 2 of 3", "rank 3 of 3"],
        2: ["rejected"],
    }
    found: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for step in range(len(feed)):
        (row,) = feed.explain(step).rows
        for segment in row.segments:
            found[segment.document or 0].append(segment)
        viewed = row_facts(subject_of(feed, title="p"), step, 0)["segments"]
        told = [part["role_of_answer"] for part in viewed]
        assert told == [segment.role_of_answer for segment in row.segments]
    assert {n: [s.role_of_answer for s in shown] for n, shown in found.items()} == roles
    assert ", preferred, " in repr(found[0][0])
    assert found[1][2].as_dict()["role_of_answer"] == "rank 3 of 3"
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'seq_len = 400\nglobal_batch_size = 1\nsteps = 1\n[[sources]]\nname = "p"\n'
        'path = "store"\nrows = "pairs"\n'
    )
    assert main(["explain", str(recipe), "0"]) == 0
    drawn = capsys.readouterr().out
    assert "document 0, preferred, tokens 0–" in drawn
    assert "document 1, rank 2 of 3, tokens " in drawn


def test_segments_of_other_rows_are_no_answers(tmp_path: Path) -> None:
    built = build(texts=["a b c"], out=tmp_path / "s", tokenizer="byte", progress=False)
    source = Source(name="t", path=built.store.path)
    feed = Feed(Recipe(seq_len=4, global_batch_size=1, sources=[source]))
    (segment,) = feed.explain(0).rows[0].segments
    assert segment.role_of_answer is None and "role_of_answer" not in segment.as_dict()
