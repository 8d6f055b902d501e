"""What differs between two recipes, states or stores, and the first step whose batch does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.feed.making import recipe_of, write_store

import tokenreel
from tokenreel import Feed, Phase, Source, StoreWriter, open_store
from tokenreel.canonical import digest
from tokenreel.errors import ConfigError, DamageError, FormatError, TokenreelError
from tokenreel.feed.batch import Batch
from tokenreel.inspect.comparison import Comparison, compare
from tokenreel.inspect.first_step import find_first_step
from tokenreel.inspect.step_comparison import compare_step
from tokenreel.inspect.targets import (
    SavedFeed,
    SavedStream,
    feed_of_state,
    kind_of,
    open_target,
    read_state_file,
)
from tokenreel.inspect.unchanged import pair_sources, same_positions
from tokenreel.stream import StreamPipeline

FIELDS = ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids")
LENGTHS = [9, 30, 3, 17, 8, 41, 5, 12, 26, 7, 33, 14]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of the same documents in two places, of one that is changed, and a dull one."""
    folder = tmp_path_factory.mktemp("stores")
    write_store(folder / "one", LENGTHS)
    write_store(folder / "copy" / "one", LENGTHS)
    write_store(folder / "two", LENGTHS[::-1], first_token=1000, sidecar="turns")
    with StoreWriter(folder / "dull", vocab_size=2**16) as writer:  # every row is like any other
        writer.add(np.full(401, 5))
    with StoreWriter(folder / "changed", vocab_size=2**16, provenance=True) as writer:
        for number, document in enumerate(open_store(folder / "one")["train"].documents()):
            tokens = document.tokens.copy()
            if number == 5:
                tokens[2] = 60_000
            writer.add(tokens, provenance=document.provenance)
    return folder


def source(stores: Path, name: str, store: str, **options: Any) -> Source:
    return Source(name=name, path=str(stores / store), **options)


def is_same_batch(a: Feed, b: Feed, step: int) -> bool:
    """Compare two batches the slow and plain way."""
    one, other = a.batch(step), b.batch(step)
    names = [[*(item.name for item in feed.recipe.sources), None] for feed in (a, b)]
    return all(np.array_equal(flat(one, name), flat(other, name)) for name in FIELDS) and [
        names[0][s] for s in one.source_ids.reshape(-1)
    ] == [names[1][s] for s in other.source_ids.reshape(-1)]


def flat(batch: Batch, name: str) -> np.ndarray:
    values: np.ndarray = getattr(batch, name)
    return values.reshape(-1, values.shape[-1])


def has_step(feed: Feed, step: int) -> bool:
    return feed.ending is None or step < feed.ending.steps


def first_by_force(a: Feed, b: Feed, stop: int) -> int | None:
    """Return the first step below `stop` that differs, making every batch."""
    for step in range(stop):
        if has_step(a, step) != has_step(b, step):
            return step
        if has_step(a, step) and not is_same_batch(a, b, step):
            return step
    return None


ROWS = st.sampled_from(("windows", "document_windows", "packed", "episodes"))
WEIGHTS = st.sampled_from((0.0, 1.0, 1.0, 2.0, 0.5))


@st.composite
def recipes(draw: st.DrawFn) -> Mapping[str, Any]:
    """A recipe as a mapping: sources by name, phases, settings."""
    names = draw(st.permutations(("x", "y", "z")))[: draw(st.integers(1, 3))]
    sources = {
        name: {
            "store": draw(st.sampled_from(("one", "copy/one", "two", "changed", "dull"))),
            "rows": draw(ROWS),
            "weight": draw(WEIGHTS),
            "shuffle": draw(st.booleans()),
            "max_epochs": draw(st.sampled_from((None, None, None, 1, 3))),
        }
        for name in names
    }
    if not any(item["weight"] for item in sources.values()):
        sources[names[0]]["weight"] = 1.0
    return {
        "seed": draw(st.integers(0, 1)),
        "pad_id": draw(st.sampled_from((0, 0, 0, 9))),
        "sources": sources,
        "phases": draw(phases(names)) if draw(st.booleans()) else [],
    }


@st.composite
def phases(draw: st.DrawFn, names: list[str]) -> list[Phase]:
    start = draw(st.integers(1, 12))
    weights = {name: draw(WEIGHTS) for name in names}
    if not any(weights.values()):
        weights[names[-1]] = 1.0
    ramp = draw(st.sampled_from((0, 0, 3)))
    return [Phase(start_step=start, weights=weights, ramp_steps=ramp)]


@st.composite
def pairs_of_recipes(draw: st.DrawFn) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Two recipes, the second mostly the first with one thing changed."""
    first, other = draw(recipes()), draw(recipes())
    if draw(st.integers(0, 4)) == 0:
        return first, other
    second = {**first, "sources": dict(first["sources"])}
    change = draw(st.sampled_from(("seed", "pad_id", "phases", "source", "more", "order")))
    name = draw(st.sampled_from(sorted(first["sources"])))
    if change in ("seed", "pad_id"):
        second[change] = other[change]
    elif change == "phases":
        second["phases"] = draw(phases([*first["sources"]]))
    elif change == "source":
        key = draw(st.sampled_from(("store", "rows", "weight", "max_epochs", "shuffle")))
        value = draw(recipes())["sources"].popitem()[1][key]
        second["sources"][name] = {**first["sources"][name], key: value}
        if not any(item["weight"] for item in second["sources"].values()):
            return first, other
    elif change == "more":
        kept = {"store": "two", "rows": "windows", "shuffle": True, "max_epochs": None}
        second["sources"]["w"] = {**kept, "weight": draw(st.sampled_from((0.0, 1.0)))}
        second["phases"] = draw(phases([*second["sources"]]))
    else:
        second["sources"] = dict(reversed(first["sources"].items()))
    return first, second


def made(stores: Path, recipe: Mapping[str, Any], *, size: int = 4) -> Feed:
    sources = []
    for name, item in recipe["sources"].items():
        options = {key: value for key, value in item.items() if key != "store"}
        sources.append(source(stores, name, item["store"], **options))
    options = {key: recipe[key] for key in ("seed", "pad_id", "phases")}
    return Feed(recipe_of(*sources, seq_len=8, global_batch_size=size, **options))


def check_against_force(a: Feed, b: Feed, *, max_steps: int, stop: int) -> None:
    """Check the first step, and what is proven, against every batch up to `stop`."""
    found, expected = find_first_step(a, b, max_steps=max_steps), first_by_force(a, b, stop)
    known = stop if found.stop is None else min(found.stop, stop)
    if found.first_step is not None and found.first_step < stop:
        assert expected == found.first_step
    else:
        assert expected is None or expected >= known
    if found.is_complete and found.first_step is None:
        assert expected is None
    if not found.is_complete:
        assert found.stop == (found.proven or 0) + max_steps


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pair=pairs_of_recipes(), max_steps=st.sampled_from((3, 60)))
def test_the_first_step_that_differs_is_that_of_all_batches_made(
    stores: Path, pair: tuple[Mapping[str, Any], Mapping[str, Any]], max_steps: int
) -> None:
    a, b = (made(stores, recipe) for recipe in pair)
    check_against_force(a, b, max_steps=max_steps, stop=24)


@settings(max_examples=40, deadline=None)
@given(recipe=recipes(), data=st.data())
def test_changes_of_weights_differ_first_where_batches_do(
    stores: Path, recipe: Mapping[str, Any], data: st.DataObject
) -> None:
    """A state with changed weights against the recipe, and against a state with other changes."""
    unlimited = {name: {**item, "max_epochs": None} for name, item in recipe["sources"].items()}
    feeds = [made(stores, {**recipe, "sources": unlimited}) for _ in range(2)]
    for feed in feeds:
        for step in sorted(data.draw(st.sets(st.integers(0, 15), max_size=2))):
            feed.step = step
            weights = {name: data.draw(WEIGHTS) for name in unlimited}
            if any(weights.values()):
                feed.change_weights(weights)
    check_against_force(*feeds, max_steps=30, stop=24)


@settings(max_examples=40, deadline=None)
@given(recipe=recipes(), passes=st.integers(1, 2), others=st.integers(1, 2), seed=st.integers(0, 1))
def test_evaluations_differ_first_where_batches_do(
    stores: Path, recipe: Mapping[str, Any], passes: int, others: int, seed: int
) -> None:
    a, b = (
        made_evaluation(stores, recipe, seed=s, passes=p) for s, p in ((0, passes), (seed, others))
    )
    check_against_force(a, b, max_steps=200, stop=max(len(a), len(b)) + 1)


def made_evaluation(stores: Path, recipe: Mapping[str, Any], *, seed: int, passes: int) -> Feed:
    sources = [
        source(stores, name, item["store"], rows=item["rows"], shuffle=item["shuffle"])
        for name, item in recipe["sources"].items()
    ]
    return Feed(recipe_of(*sources, seed=seed, passes=passes, seq_len=16, global_batch_size=8))


def test_a_phase_far_away_is_found_without_comparing_what_comes_before(stores: Path) -> None:
    sources = [source(stores, "one", "one"), source(stores, "two", "two", weight=0.0)]
    phase = Phase(start_step=60_000, weights={"one": 0.5, "two": 0.5})
    a = Feed(recipe_of(*sources, global_batch_size=8))
    b = Feed(recipe_of(*sources, global_batch_size=8, phases=[phase]))
    found = find_first_step(a, b, max_steps=3)
    assert found.first_step is not None and found.proven is not None
    assert 59_990 <= found.proven <= found.first_step <= 60_001
    assert all(is_same_batch(a, b, step) for step in range(found.first_step - 20, found.first_step))
    assert not is_same_batch(a, b, found.first_step)


@settings(max_examples=30, deadline=None)
@given(
    weights=st.lists(st.integers(1, 5), min_size=2, max_size=5),
    start=st.integers(1, 60),
    ramp=st.sampled_from((0, 7)),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_rows_that_cannot_differ_do_not_differ_up_to_the_very_row(
    stores: Path, weights: list[int], start: int, ramp: int, seed: int, data: st.DataObject
) -> None:
    """Batches of one row: the bound is a row, and may lie before the row the phase begins with."""
    names = [f"s{n}" for n in range(len(weights))]
    sources = [
        source(stores, name, ("one", "two")[n % 2], weight=float(weights[n]))
        for n, name in enumerate(names)
    ]
    late = source(stores, "late", "one", weight=0.0)
    total = sum(weights)
    # No share rises but that of the source that had none; not by a bit, so none stays as it is.
    after = {
        name: data.draw(st.sampled_from((0.0, 0.5))) * w
        for name, w in zip(names, weights, strict=True)
    }
    phase = Phase(
        start_step=start, weights={**after, "late": total - sum(after.values())}, ramp_steps=ramp
    )
    a = Feed(recipe_of(*sources, late, global_batch_size=1, seed=seed))
    b = Feed(recipe_of(*sources, late, global_batch_size=1, seed=seed, phases=[phase]))
    bound = same_positions(a, b, pair_sources(a, b))
    assert bound >= start - 4 * len(weights)
    check_against_force(a, b, max_steps=100, stop=start + 40)
    without = Feed(recipe_of(*sources, global_batch_size=1, seed=seed))
    assert same_positions(without, b, pair_sources(without, b)) == bound


def test_another_padding_is_not_skipped(stores: Path) -> None:
    a, b = (Feed(recipe_of(source(stores, "one", "one"), pad_id=pad)) for pad in (0, 9))
    padded = next(step for step in range(99) if (a.batch(step).segment_ids == 0).any())
    assert find_first_step(a, b).first_step == padded > 0


def test_a_phase_that_raises_a_share_above_its_largest_is_not_skipped(stores: Path) -> None:
    """Its margin of jitter is wider from the first step on, so rows move long before the phase."""
    sources = [source(stores, "one", "one", weight=0.9), source(stores, "two", "two", weight=0.1)]
    phase = Phase(start_step=60_000, weights={"one": 0.1, "two": 0.9})
    a = Feed(recipe_of(*sources))
    b = Feed(recipe_of(*sources, phases=[phase]))
    assert same_positions(a, b, pair_sources(a, b)) == 0
    found = find_first_step(a, b)
    assert found.first_step is not None and found.first_step < 10_000
    assert found.first_step == first_by_force(a, b, found.first_step + 1)


def test_a_changed_store_that_is_shown_late_differs_late(stores: Path) -> None:
    phase = Phase(start_step=5_000, weights={"a": 1.0, "b": 0.0, "c": 1.0})
    a, b = (
        Feed(
            recipe_of(
                source(stores, "a", "one"),
                source(stores, "b", "two"),
                source(stores, "c", store, weight=0.0),
                phases=[phase],
            )
        )
        for store in ("one", "changed")
    )
    found = find_first_step(a, b, max_steps=100)
    assert found.proven is not None and 4_990 <= found.proven <= 5_001
    assert found.first_step is not None and found.first_step >= found.proven
    steps = range(found.proven, found.first_step)
    assert all(is_same_batch(a, b, step) for step in steps)
    assert not is_same_batch(a, b, found.first_step)


def test_rows_of_other_numbers_and_the_same_tokens_are_the_same(stores: Path) -> None:
    a = Feed(recipe_of(source(stores, "dull", "dull"), seed=1))
    b = Feed(recipe_of(source(stores, "dull", "dull"), seed=2))
    found = compare(a, b, max_steps=5)
    assert found.search is not None and found.search.stop == 5 and not found.search.is_complete
    assert not found.is_same and found.search.first_step is None
    assert found.why.startswith("the same in the 5 steps searched; there are more")


def test_identical_recipes_on_other_paths_are_the_same(stores: Path) -> None:
    a = Feed(recipe_of(source(stores, "one", "one", rows="packed"), grad_accum=2))
    b = Feed(recipe_of(source(stores, "one", "copy/one", rows="packed", mode="pread"), steps=9))
    found = compare(a, b)
    assert found.is_same and found.differences.identity == []
    assert found.why == "no step differs: identities are equal, so every batch is"
    others = {item.field for item in found.differences.others}
    assert others == {"grad_accum", "steps", "sources.one.path", "sources.one.mode"}


def test_other_identities_with_the_same_rows_are_the_same(stores: Path) -> None:
    a = Feed(recipe_of(source(stores, "one", "one", rows="packed")))
    b = Feed(recipe_of(source(stores, "one", "one", rows="packed", truncation="split")))
    found = compare(a, b)
    assert a.fingerprint != b.fingerprint and found.is_same
    assert [item.as_dict() for item in found.differences.identity] == [
        {"field": "sources.one.truncation", "a": None, "b": "split"}
    ]


def fields_of(found: Comparison) -> dict[str, tuple[Any, Any]]:
    return {item.field: (item.a, item.b) for item in found.differences.identity}


def test_every_field_of_the_identity_is_named(stores: Path) -> None:
    first = [source(stores, "a.b", "one", rows="packed"), source(stores, "y", "two")]
    second = [
        source(stores, "a.b", "changed", rows="packed", packing="first_fit", weight=2.0),
        source(stores, "z", "two"),
    ]
    phase = Phase(start_step=7, weights={"a.b": 1.0})
    a = Feed(recipe_of(*first, seed=1))
    b = Feed(recipe_of(*second, seed=2, phases=[phase], pad_id=3))
    found = fields_of(compare(a, b))
    assert found["seed"] == (1, 2) and found["pad_id"] == (0, 3)
    assert found["sources"] == ("a.b, y", "a.b, z")
    assert found["sources.a.b.weight"] == (1.0, 2.0)
    assert found["sources.a.b.packing"] == (None, "first_fit")
    assert found["sources.a.b.plan.method"] == ("best_fit", "first_fit")
    assert found["sources.a.b.store"] == (a.stores[0].fingerprint, b.stores[0].fingerprint)
    assert found["phases.0.start_step"] == (None, 7)
    assert not any(name.startswith(("sources.y", "sources.z")) for name in found)


def test_a_setting_that_decides_the_plan_is_named_once(stores: Path) -> None:
    sources = [
        source(stores, "one", "one", rows="packed", truncation=t) for t in ("split", "keep_first")
    ]
    found = fields_of(compare(*(Feed(recipe_of(item)) for item in sources)))
    assert found == {"sources.one.truncation": ("split", "keep_first")}
    longer = replace(recipe_of(sources[0]), seq_len=16)
    assert fields_of(compare(Feed(recipe_of(sources[0])), Feed(longer))) == {"seq_len": (8, 16)}


def test_what_differs_between_manifests_is_named(tmp_path: Path) -> None:
    texts = [f"text number {n}" for n in range(20)]
    tokenreel.build(texts=texts, out=tmp_path / "a", tokenizer="byte")
    tokenreel.build(texts=texts, out=tmp_path / "b", tokenizer="byte", val_frac=0.25, seed=9)
    recipes = [recipe_of(Source(name="s", path=str(tmp_path / name))) for name in "ab"]
    found = fields_of(compare(*map(Feed, recipes)))
    assert found["sources.s.store.build.val_frac"] == (0.0, 0.25)
    assert found["sources.s.store.build.seed"] == (42, 9)
    assert found["sources.s.store.splits.train.documents"][0] == 20
    assert "sources.s.store.fingerprint" not in found


def test_shapes_that_differ_are_said_at_once(stores: Path) -> None:
    a = Feed(recipe_of(source(stores, "one", "one")))
    b = Feed(recipe_of(source(stores, "one", "one"), global_batch_size=8))
    found = compare(a, b)
    assert found.search is not None and found.search.first_step == 0
    assert "4 rows of 8 tokens against 8 rows of 8 tokens" in found.why
    step = compare_step(a, b, 3)
    assert not step.is_same and step.rows == [] and "other shapes" in str(step.why)


def test_a_run_that_ends_earlier_for_want_of_rows_differs_there(stores: Path) -> None:
    a = Feed(recipe_of(source(stores, "one", "one", max_epochs=1)))
    b = Feed(recipe_of(source(stores, "one", "one", max_epochs=2)))
    found = find_first_step(a, b)
    assert found.first_step == len(a) and "only the second has step" in str(found.why)
    assert find_first_step(b, a).first_step == len(a)
    shorter = Feed(replace(b.recipe, steps=len(a)))
    assert find_first_step(a, shorter).first_step is None


def test_the_difference_at_a_step_names_rows_fields_and_slots(stores: Path) -> None:
    a = Feed(recipe_of(source(stores, "one", "one", shuffle=False)))
    b = Feed(recipe_of(source(stores, "one", "changed", shuffle=False)))
    first = find_first_step(a, b).first_step
    assert first == first_by_force(a, b, 10) and first is not None
    one, other = a.batch(first), b.batch(first)
    found = compare_step(a, b, first)
    for row, expected in zip(found.rows, (one.input_ids != other.input_ids), strict=True):
        named = row.differing.get("input_ids")
        assert (named is not None) == expected.any()
        if named is not None:
            at = int(np.flatnonzero(expected)[0])
            assert (named.first_slot, named.num_slots) == (at, int(expected.sum()))
            assert named.b == 60_000 and named.a == int(one.input_ids[row.row, at])
            labels = row.differing.get("labels")
            assert row.first_slot == (at if labels is None else labels.first_slot)
    assert sum(not row.is_same for row in found.rows) == 1
    assert json.loads(json.dumps(found.as_dict()))["rows"][0]["sources"] == ["one", "one"]


def test_microbatches_do_not_hide_a_difference(stores: Path) -> None:
    a = Feed(recipe_of(source(stores, "one", "one"), grad_accum=2))
    b = Feed(recipe_of(source(stores, "one", "one")))
    assert compare_step(a, b, 5).is_same
    c = Feed(recipe_of(source(stores, "one", "one"), seed=3))
    rows = [row.is_same for row in compare_step(a, c, 5).rows]
    expected = (flat(a.batch(5), "input_ids") == flat(c.batch(5), "input_ids")).all(axis=1)
    assert rows == expected.tolist() and not all(rows)


@pytest.mark.parametrize("passes", [None, 1])
def test_a_large_step_is_compared_some_rows_at_a_time_with_the_same_result(
    stores: Path, monkeypatch: pytest.MonkeyPatch, passes: int | None
) -> None:
    options: dict[str, Any] = {"global_batch_size": 32, "passes": passes}
    a = Feed(recipe_of(source(stores, "one", "one"), **options))
    b = Feed(recipe_of(source(stores, "one", "changed"), **options))
    whole = compare_step(a, b, 0)
    monkeypatch.setattr("tokenreel.inspect.step_comparison.SLOTS_AT_ONCE", 5 * 8)
    assert compare_step(a, b, 0).as_dict() == whole.as_dict()
    assert len(whole.rows) == 32 and not whole.is_same


def test_sources_are_compared_by_name_not_by_number(stores: Path) -> None:
    both = [source(stores, "one", "one", weight=0.5), source(stores, "two", "two", weight=0.5)]
    a, b = Feed(recipe_of(*both)), Feed(recipe_of(*reversed(both)))
    assert not np.array_equal(a.batch(0).source_ids, b.batch(0).source_ids)
    assert compare_step(a, b, 0).is_same
    found = compare(a, b, max_steps=50)
    assert found.search is not None and found.search.first_step is None
    # Rows that fall due at once come in the order of their sources: nothing is claimed.
    assert found.search.proven == 0 and not found.search.is_complete
    assert any("other numbers in source_ids" in note for note in found.notes)


def test_pairs_and_prompts_are_compared_with_their_labels_and_records(tmp_path: Path) -> None:
    prompts = [{"prompt": f"what is {n} + {n}?", "answer": n} for n in range(30)]
    for name, changed in (("a", -1), ("b", 17)):
        lines = [
            {**item, "answer": "other"} if n == changed else item for n, item in enumerate(prompts)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        tokenreel.build(
            tmp_path / f"{name}.jsonl", out=tmp_path / name, tokenizer="byte", prompts=True
        )
    a, b = (
        Feed(
            recipe_of(
                Source(name="p", path=str(tmp_path / name), rows="prompts", repeats=2),
                seq_len=64,
            )
        )
        for name in "ab"
    )
    first = find_first_step(a, b).first_step
    assert first == next(step for step in range(50) if a.records(step) != b.records(step))
    rows = [row for row in compare_step(a, b, first).rows if not row.is_same]
    assert len(rows) == 2 and all(list(row.differing) == ["records"] for row in rows)


def saved(feed: Feed, path: Path) -> Path:
    path.write_text(json.dumps(feed.state_dict()))
    return path


def test_a_recipe_is_compared_with_a_state_by_the_stores_it_has(
    stores: Path, tmp_path: Path
) -> None:
    sources = [source(stores, "one", "one"), source(stores, "two", "two", rows="episodes")]
    recipe = recipe_of(*sources, seed=3)
    run = Feed(recipe)
    run.step = 40
    run.change_weights({"one": 0.2, "two": 0.8})
    run.step = 50
    state = open_target(saved(run, tmp_path / "state.json"))
    assert isinstance(state, SavedFeed) and kind_of(state) == "feed_state"
    found = compare(Feed(recipe), state)
    assert found.search is not None and found.search.first_step == first_by_force(
        Feed(recipe), run, 60
    )
    assert found.search.proven == 40
    assert fields_of(found)["changes.0.weights.two"] == (None, 0.8)
    assert fields_of(found)["changes"] == (0, 1)
    # Another seed: the state's own feed is made of the recipe's stores.
    other = Feed(replace(recipe, seed=4))
    again = compare(state, other)
    assert again.search is not None and again.search.first_step == first_by_force(run, other, 10)
    remade = feed_of_state(state, other.stores)
    assert remade.fingerprint == run.fingerprint and remade.step == 50
    assert all(is_same_batch(remade, run, step) for step in (0, 45, 70))


def test_states_at_other_steps_of_one_run_are_the_same(stores: Path, tmp_path: Path) -> None:
    feed = Feed(recipe_of(source(stores, "one", "one")))
    first = read_state_file(saved(feed, tmp_path / "a.json"))
    feed.step = 9
    second = read_state_file(saved(feed, tmp_path / "b.json"))
    found = compare(first, second)
    assert found.is_same and found.differences.identity == []
    assert [item.as_dict() for item in found.differences.others] == [
        {"field": "step", "a": 0, "b": 9}
    ]


def test_states_without_their_stores_say_only_what_they_know(stores: Path, tmp_path: Path) -> None:
    both = [source(stores, "one", "one"), source(stores, "two", "two")]
    feed, other = Feed(recipe_of(*both)), Feed(recipe_of(*both, seed=5))
    a = read_state_file(saved(feed, tmp_path / "a.json"))
    b = read_state_file(saved(other, tmp_path / "b.json"))
    found = compare(a, b)
    assert not found.is_same and found.search is None and fields_of(found) == {"seed": (0, 5)}
    assert "cannot be told without the stores" in found.why
    feed.step = 12
    feed.change_weights({"one": 1.0})
    changed = read_state_file(saved(feed, tmp_path / "c.json"))
    found = compare(a, changed)
    assert not found.is_same and "the same before step 12" in found.why
    with_stores = compare(a, changed, stores=feed.stores)
    assert with_stores.search is not None
    assert with_stores.search.first_step == first_by_force(Feed(recipe_of(*both)), feed, 40)


def test_a_state_that_was_edited_is_refused(stores: Path, tmp_path: Path) -> None:
    path = saved(Feed(recipe_of(source(stores, "one", "one"))), tmp_path / "state.json")
    state = json.loads(path.read_text())
    state["identity"]["recipe"]["seed"] = 8
    path.write_text(json.dumps(state))
    with pytest.raises(DamageError, match="does not match its fingerprint"):
        open_target(path)
    path.write_text(json.dumps({"hello": 1}))
    with pytest.raises(ConfigError, match="neither the state of a feed nor that of a stream"):
        open_target(path)
    path.write_text(json.dumps({**state, "identity": {"recipe": 1}}))
    with pytest.raises((DamageError, FormatError)):
        open_target(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        open_target(tmp_path / "gone.json")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(SCALARS, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=4)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_state_with_anything_in_it_is_compared_or_refused(
    stores: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Fields are replaced or removed, and the fingerprint is made to fit."""
    feed = Feed(recipe_of(source(stores, "one", "one"), source(stores, "two", "two")))
    state = json.loads(json.dumps(feed.state_dict()))
    place: Any = data.draw(st.sampled_from((state, state["identity"], state["identity"]["recipe"])))
    if place is not state and data.draw(st.booleans()):
        place = data.draw(st.sampled_from(state["identity"]["recipe"]["sources"]))
    key = data.draw(st.sampled_from(sorted(place)))
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(JSON)
    if "fingerprint" in state and "identity" in state and place is not state:
        state["fingerprint"] = digest_or_none(state["identity"])
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_text(json.dumps(state))
    try:
        found = compare(feed, open_target(path), max_steps=2)
    except TokenreelError:
        return
    assert json.dumps(found.as_dict())


def digest_or_none(value: object) -> str | None:
    try:
        return digest(value)
    except ValueError:
        return None


def stream_state(tmp_path: Path, name: str, *, steps: int, **data: Any) -> SavedStream:
    settings = {"backend": "local_text", "local_files": str(tmp_path / "*.jsonl"), **data}
    config = {
        "data": {**settings, "tokenizer": {"kind": "byte", "add_eos": True}},
        "train": {"seq_len": 32, "batch_size": 2},
    }
    with StreamPipeline(config) as pipeline:
        for _ in range(steps):
            next(pipeline)
        (tmp_path / name).write_text(json.dumps(pipeline.get_state()))
    state = open_target(tmp_path / name)
    assert isinstance(state, SavedStream) and kind_of(state) == "stream_state"
    return state


def test_states_of_streams_are_compared_by_settings_and_place(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"line {n} of a stream"}) for n in range(200)]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    a = stream_state(tmp_path, "a.json", steps=3)
    assert compare(a, stream_state(tmp_path, "b.json", steps=3)).is_same
    later = compare(a, stream_state(tmp_path, "c.json", steps=5))
    assert later.is_same and {"step"} <= {item.field for item in later.differences.others}
    other = compare(a, stream_state(tmp_path, "d.json", steps=3, packing_mode="bin"))
    assert not other.is_same and other.why == "the states are of different streams"
    assert any("packing_mode" in item.field for item in other.differences.identity)
    moved = json.loads((tmp_path / "a.json").read_text())
    moved["lanes"]["0"]["taken"] += 1
    (tmp_path / "e.json").write_text(json.dumps(moved))
    found = compare(a, open_target(tmp_path / "e.json"))
    assert not found.is_same and [item.field for item in found.differences.identity] == [
        "lanes.0.taken"
    ]


def test_things_of_different_kinds_are_refused(stores: Path) -> None:
    feed, store = Feed(recipe_of(source(stores, "one", "one"))), open_store(stores / "one")
    with pytest.raises(ConfigError, match="a recipe cannot be compared with a store"):
        compare(feed, store)
    with pytest.raises(ConfigError, match="a store cannot be compared with a recipe"):
        compare(store, feed)
