"""Property 13: token and sample means do not change with ranks, microbatches or packing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import recipe_of, scratch, write_store

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.denominators import Denominators
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Mode, Recipe, Source
from tokenreel.rows.kinds import Rows

KINDS = ("windows", "document_windows", "episodes", "packed")


def losses_of(batch: Batch) -> np.ndarray:
    """Some loss of each label, float64: any function of what the model sees there."""
    seen = batch.input_ids * 31 + np.maximum(batch.labels, 0) * 17 + batch.position_ids
    return (seen % 101) / 7.0


def brute_force(batch: Batch) -> tuple[Denominators, float, float]:
    """Return denominators, token mean and sample mean of a global batch, a slot at a time."""
    losses = losses_of(batch)
    samples: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for row in range(len(losses)):
        for slot in range(losses.shape[1]):
            weight = float(batch.loss_weights[row, slot])
            if weight > 0:
                key = (row, int(batch.segment_ids[row, slot]))
                samples.setdefault(key, []).append((weight, float(losses[row, slot])))
    flat = [pair for pairs in samples.values() for pair in pairs]
    tokens = math.fsum(weight for weight, _ in flat)
    means = [
        math.fsum(weight * loss for weight, loss in pairs) / math.fsum(w for w, _ in pairs)
        for pairs in samples.values()
    ]
    found = Denominators(tokens=tokens, samples=len(samples))
    token_mean = math.fsum(weight * loss for weight, loss in flat) / tokens
    return found, token_mean, math.fsum(means) / len(means)


def check_step(recipe: Recipe, step: int, *, worlds: tuple[int, ...]) -> None:
    """Compare the means of every split with brute force over the global batch."""
    expected, token_mean, sample_mean = brute_force(Feed(replace(recipe, grad_accum=1)).batch(step))
    for world_size in worlds:
        for grad_accum in (1, recipe.global_batch_size // world_size):
            feed = Feed(replace(recipe, grad_accum=grad_accum))
            found = feed.denominators(step)
            assert found == expected
            assert feed.weight_sum(step) == expected.tokens
            tokens, samples = [], []
            for rank in range(world_size):
                part = feed.batch(step, rank=rank, world_size=world_size)
                tokens.append(float((part.loss_weights * losses_of(part)).sum()))
                samples.append(float((part.sample_weights() * losses_of(part)).sum()))
            assert sum(tokens) / found.tokens == pytest.approx(token_mean, rel=1e-12)
            assert sum(samples) / found.samples == pytest.approx(sample_mean, rel=1e-12)


@given(
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    sidecars=st.tuples(*[st.sampled_from([None, "weights", "mask", "turns"])] * 2),
    mode=st.sampled_from(["mmap", "pread"]),
    lengths=st.lists(st.integers(0, 30), min_size=2, max_size=8),
    seq_len=st.integers(1, 16),
    seed=st.integers(0, 99),
)
@settings(max_examples=6, deadline=None)
def test_means_are_the_same_for_any_split_of_a_step(
    kinds: tuple[Rows, Rows],
    sidecars: tuple[str | None, str | None],
    mode: Mode,
    lengths: list[int],
    seq_len: int,
    seed: int,
) -> None:
    with scratch() as folder:
        sources = []
        for name, kind, sidecar in zip("ab", kinds, sidecars, strict=True):
            write_store(folder / name, [*lengths, 9], sidecar=sidecar, shard_tokens=45, seed=seed)
            sources.append(Source(name=name, path=folder / name, rows=kind, mode=mode))
        recipe = recipe_of(*sources, seq_len=seq_len, global_batch_size=6, seed=seed)
        try:
            Feed(recipe)
        except ConfigError as error:
            assert "so there are no rows" in str(error)
            return
        for step in (0, 3):
            check_step(recipe, step, worlds=(1, 2, 6))


def test_packing_changes_neither_mean_of_whole_documents(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [9, 5, 12, 7, 3, 8, 2, 11], sidecar="weights")
    means = set()
    for kind in ("packed", "episodes"):
        source = Source(name="s", path=tmp_path / "s", rows=kind, shuffle=False)
        num_rows = Feed(recipe_of(source, seq_len=24, global_batch_size=1)).plans[0].num_rows
        feed = Feed(recipe_of(source, seq_len=24, global_batch_size=num_rows))
        found, token_mean, sample_mean = brute_force(feed.batch(0))
        assert feed.denominators(0) == found
        means.add((found, round(token_mean, 9), round(sample_mean, 9)))
    assert len(means) == 1


def test_weights_of_a_sample_add_up_to_one(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [9, 5, 12, 7, 3, 8, 2, 11] * 3, sidecar="weights")
    source = Source(name="s", path=tmp_path / "s", rows="packed")
    batch = Feed(recipe_of(source, seq_len=24, global_batch_size=4, grad_accum=2)).batch(0)
    weights = batch.sample_weights()
    assert weights.dtype == np.float64
    assert weights.shape == batch.labels.shape == (2, 2, 24)
    assert np.array_equal(weights > 0, batch.loss_mask)
    rows = zip(weights.reshape(4, 24), batch.segment_ids.reshape(4, 24), strict=True)
    for row, segments in rows:
        for segment in np.unique(segments[row > 0]):
            assert row[segments == segment].sum() == pytest.approx(1.0, rel=1e-12)


def test_a_step_before_the_first_has_no_denominators(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [20])
    feed = Feed(recipe_of(Source(name="s", path=tmp_path / "s")))
    with pytest.raises(ConfigError, match=r"bad step \(expected >= 0, got -1\)"):
        feed.denominators(-1)


@pytest.mark.parametrize("kernel", ["native", "numpy"])
@pytest.mark.parametrize("sidecar", [None, "mask", "turns"])
def test_a_segment_without_a_target_is_no_sample(
    tmp_path: Path, sidecar: str | None, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "numpy":
        monkeypatch.setattr(native, "extension", lambda: None)
    write_store(tmp_path / "s", [5, 1, 3, 1, 1, 9, 2, 1, 6, 30], sidecar=sidecar, seed=2)
    source = Source(name="s", path=tmp_path / "s", rows="document_windows", shuffle=False)
    feed = Feed(recipe_of(source, seq_len=6, global_batch_size=2, passes=1))
    without = 0
    for step in range(len(feed)):
        batch = feed.batch(step)
        expected, _, _ = brute_force(batch)
        assert feed.denominators(step) == expected
        without += int(batch.segment_ids.max(axis=1).sum()) - expected.samples
    assert without > 0
