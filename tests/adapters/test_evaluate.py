"""Evaluation against documents run one by one, and losses by source against rows by source."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.adapters.making import SEQ_LEN, VOCAB, mixed_recipe, val_recipe, write_stores
from tests.adapters.tiny_model import TinyModel, segmented
from tests.feed.making import Doc, recipe_of, write_store
from torch.nn.functional import cross_entropy

from tokenreel.errors import EndlessError
from tokenreel.feed.feed import Feed
from tokenreel.feed.losses import Evaluation
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.rows.kinds import Rows
from tokenreel.torch import FeedLoader, Tensors, evaluate, loss_by_source, loss_sum

LENGTH = 32
Documents = dict[str, list[Doc]]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Documents]:
    """Two stores of documents that fit into a row each, one with weights of its own."""
    folder = tmp_path_factory.mktemp("stores")
    lengths = np.random.default_rng(3).integers(2, LENGTH + 2, 24).tolist()
    tales = write_store(folder / "tales", lengths)
    chats = write_store(folder / "chats", lengths[::-2], sidecar="weights", first_token=600)
    write_stores(folder)
    return folder, {"tales": tales, "chats": chats}


def all_of(folder: Path, rows: Rows = "packed", **options: Any) -> Recipe:
    """Return the recipe that shows every document once."""
    sources = [Source(name=n, path=folder / n, rows=rows) for n in ("tales", "chats")]
    return recipe_of(*sources, seq_len=LENGTH, passes=1, **options)


def random_model(kind: str) -> torch.nn.Module:
    """Return a tiny model of transformers, with larger weights than it begins with."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    made: Any
    if kind == "llama":
        sizes: Any = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
        made = LlamaForCausalLM(LlamaConfig(vocab_size=1024, num_hidden_layers=2, **sizes))
    else:
        made = GPT2LMHeadModel(GPT2Config(vocab_size=1024, n_embd=16, n_layer=2, n_head=2))
    for parameter in made.parameters():
        parameter.data *= 3
    model: torch.nn.Module = made.double()
    return model


def one_by_one(model: Any, documents: Documents) -> dict[str, tuple[float, float]]:
    """Return the weighted sum of losses and the sum of weights of each source's documents."""
    model.eval()
    sums = {}
    for name, mine in documents.items():
        losses, weights = [], []
        for document in mine:
            ids = torch.tensor(document.tokens)[None]
            with torch.no_grad():
                logits = model(input_ids=ids[:, :-1]).logits[0]
            each = cross_entropy(logits, ids[0, 1:], reduction="none")
            weight = torch.tensor(document.weights[1:], dtype=torch.float64)
            losses.append(float((each * weight).sum()))
            weights.append(float(weight.sum()))
        sums[name] = math.fsum(losses), math.fsum(weights)
    return sums


def figures(result: Evaluation) -> list[float]:
    """Return all figures of an evaluation."""
    return [*result.as_dict().values(), *(part.weight for part in result.by_source.values())]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_an_evaluation_is_the_mean_over_documents_run_one_by_one(
    documents: tuple[Path, Documents], kind: str
) -> None:
    folder, written = documents
    model = random_model(kind)
    assert model.config.use_cache  # type: ignore[union-attr]
    expected = one_by_one(model, written)
    for rows in ("packed", "episodes"):
        result = evaluate(model, all_of(folder, rows, global_batch_size=5))
        for name, (loss, weight) in expected.items():
            part = result.by_source[name]
            assert part.weight == pytest.approx(weight, rel=1e-12)
            assert part.loss == pytest.approx(loss / weight, rel=1e-6)
            assert part.perplexity == pytest.approx(math.exp(loss / weight), rel=1e-5)
        total, weights = (math.fsum(column) for column in zip(*expected.values(), strict=True))
        assert result.loss == pytest.approx(total / weights, rel=1e-6)
        assert result.steps == len(Feed(all_of(folder, rows, global_batch_size=5)))


def test_figures_do_not_change_with_batch_size_microbatches_or_packing(
    documents: tuple[Path, Documents],
) -> None:
    folder, _ = documents
    model = random_model("llama").float()
    expected = figures(evaluate(model, all_of(folder, global_batch_size=8)))
    for options in (
        {"global_batch_size": 1},
        {"global_batch_size": 7},
        {"global_batch_size": 64},
        {"global_batch_size": 6, "grad_accum": 2},
        {"global_batch_size": 4, "grad_accum": 4},
        {"global_batch_size": 5, "rows": "episodes"},
        {"global_batch_size": 6, "rows": "episodes", "grad_accum": 3, "seed": 9},
        {"global_batch_size": 3, "passes": 2},
    ):
        rows, passes = options.pop("rows", "packed"), options.pop("passes", 1)
        recipe = replace(all_of(folder, rows, **options), passes=passes)  # type: ignore[arg-type]
        found = figures(evaluate(model, recipe, prefetch=0))
        weights = [weight * passes for weight in expected[-2:]]  # type: ignore[operator]
        assert found == pytest.approx([*expected[:-2], *weights], rel=1e-6), options


@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_ranks_that_are_given_evaluate_their_rows_alone_and_add_up(
    documents: tuple[Path, Documents], world_size: int
) -> None:
    folder, _ = documents
    recipe = val_recipe(folder)
    model = TinyModel(VOCAB, SEQ_LEN)
    whole = evaluate(model, recipe, forward=segmented)
    parts = [
        evaluate(model, recipe, forward=segmented, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    assert {part.steps for part in parts} == {whole.steps}
    assert math.fsum(part.weight for part in parts) == pytest.approx(whole.weight, rel=1e-12)
    losses = [part.loss * part.weight for part in parts if part.weight]
    assert math.fsum(losses) / whole.weight == pytest.approx(whole.loss, rel=1e-6)


def test_a_model_is_left_as_it_was(documents: tuple[Path, Documents]) -> None:
    folder, _ = documents
    recipe = all_of(folder)
    model: Any = random_model("llama").train()
    model.model.layers[0].eval()  # a frozen part of a model that is trained
    modes = [module.training for module in model.modules()]
    seen = []

    def forward(model: Any, batch: Any) -> torch.Tensor:
        seen.append((any(m.training for m in model.modules()), model.config.use_cache))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        evaluate(model, recipe, forward=forward)
    evaluate(model, recipe)
    assert seen == [(False, False)]
    assert [module.training for module in model.modules()] == modes
    assert len(set(modes)) == 2
    assert model.config.use_cache is True
    assert torch.is_grad_enabled()


def test_a_feed_can_be_evaluated_again_and_a_run_without_end_not_at_all(
    documents: tuple[Path, Documents],
) -> None:
    folder, _ = documents
    model = TinyModel(VOCAB, SEQ_LEN)
    feed = Feed(val_recipe(folder))
    first = evaluate(model, feed, forward=segmented)
    feed.step = 2  # wherever it is
    assert evaluate(model, feed, forward=segmented) == first
    some = evaluate(model, mixed_recipe(folder, steps=2), forward=segmented)
    assert some.steps == 2
    with pytest.raises(EndlessError, match="a run without end has no length"):
        evaluate(model, mixed_recipe(folder), forward=segmented)
    assert model.training


def sums_of(feed: Feed, make: Callable[[dict[str, torch.Tensor]], torch.Tensor]) -> np.ndarray:
    """Return losses and weights by source of a whole run, [2, S]."""
    num_sources = len(feed.recipe.sources)
    parts = [loss_by_source(make(b), b, num_sources=num_sources) for b in FeedLoader(feed)]
    return np.sum([torch.stack(part).numpy() for part in parts], axis=0)


def test_sums_by_source_of_mixed_rows_are_those_of_the_rows_fed_source_by_source(
    documents: tuple[Path, Documents],
) -> None:
    folder, _ = documents
    model = TinyModel(VOCAB, SEQ_LEN, dtype=torch.float64)

    @torch.no_grad()
    def run(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return segmented(model, batch)

    recipe = val_recipe(folder)
    mixed = sums_of(Feed(recipe), run)
    alone = [sums_of(Feed(replace(recipe, sources=[source])), run) for source in recipe.sources]
    np.testing.assert_allclose(mixed, np.concatenate(alone, axis=1), rtol=1e-9)
    assert (mixed[1] > 0).all()
    # And within a step of training, on one rank and on three.
    feed = Feed(mixed_recipe(folder))
    for step in range(4):
        whole = Tensors()(feed.batch(step))
        sums, weights = loss_by_source(run(whole), whole, num_sources=3)
        for source in range(3):
            mine = {name: whole[name][whole["source_ids"] == source] for name in whole}
            assert float(sums[source]) == pytest.approx(float(loss_sum(run(mine), mine)), rel=1e-9)
            assert float(weights[source]) == float(mine["loss_weights"].sum())
        parts = [Tensors()(feed.batch(step, rank=rank, world_size=3)) for rank in range(3)]
        by_rank = [torch.stack(loss_by_source(run(p), p, num_sources=3)) for p in parts]
        torch.testing.assert_close(sum(by_rank), torch.stack((sums, weights)))


def test_rows_that_fill_up_the_shape_count_nothing_whatever_their_logits(
    documents: tuple[Path, Documents],
) -> None:
    folder, _ = documents
    batch = Tensors()(Feed(mixed_recipe(folder)).batch(0, rank=0, world_size=3))
    filler = batch["source_ids"] < 0
    assert filler.tolist() == [False, False, True]
    logits = torch.zeros(3, SEQ_LEN, VOCAB)
    logits[filler] = torch.nan
    sums, weights = loss_by_source(logits, batch, num_sources=3)
    torch.testing.assert_close(sums, weights * math.log(VOCAB))
    assert float(weights.sum()) == float(batch["loss_weights"].sum())
