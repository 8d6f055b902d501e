"""The real Trainer of transformers, with Accelerate under it, on rows of a feed."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.adapters.making import SEQ_LEN
from tests.adapters.ranks import Ranks
from tests.feed.making import recipe_of, write_store
from torch.utils.data import DataLoader

from tokenreel.errors import ConfigError, EndlessError, MismatchError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.torch import FeedLoader, FeedRows, evaluate, loss_sum


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Packed and windowed rows whose weights are 0 and 1."""
    write_store(tmp_path / "web", [500, 9, 61, 130], shard_tokens=300)
    write_store(tmp_path / "notes", [9, 2, 14, 21, 5, 11, 30], first_token=800)
    return rows_recipe(tmp_path)


def rows_recipe(folder: Path) -> Recipe:
    """Return the recipe of the stores in a folder."""
    sources = (
        Source(name="web", path=str(folder / "web"), weight=0.6),
        Source(name="notes", path=str(folder / "notes"), rows="packed", weight=0.4),
    )
    return recipe_of(*sources, seq_len=SEQ_LEN, global_batch_size=8, seed=3)


def test_a_trainer_resumed_in_mid_epoch_gets_exactly_what_was_to_come(
    recipe: Recipe, tmp_path: Path
) -> None:
    from tests.adapters.trainer_run import EPOCH_STEPS, train

    feed = Feed(recipe)
    assert 5 < EPOCH_STEPS < 10  # the checkpoint is within the first epoch, the end is not
    whole = train(recipe, tmp_path / "run")
    state = json.loads((tmp_path / "run/checkpoint-5/trainer_state.json").read_text())
    resumed = train(recipe, tmp_path / "again", resume=str(tmp_path / "run/checkpoint-5"))
    assert (len(whole.given), len(resumed.given)) == (24, 14)
    for number, given in enumerate(whole.given):
        step, rank = divmod(number, 2)
        part = feed.batch(step, rank=rank, world_size=2)
        assert given["input_ids"].numpy().tolist() == part.input_ids.tolist()
        assert given["position_ids"].numpy().tolist() == part.position_ids.tolist()
        assert given["shift_labels"].numpy().tolist() == part.labels.tolist()
    for one, other in zip(whole.given[10:], resumed.given, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in ("input_ids", "shift_labels"))
    trained = zip(whole.parameters(), resumed.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in trained)
    loader = FeedLoader(recipe)
    loader.load_state_dict(state["stateful_callbacks"]["tokenreel"])
    assert loader.state_dict()["step"] == 5
    with pytest.raises(MismatchError, match=r"recipe.seed \(expected 3, got 4\)"):
        changed = replace(recipe, seed=4)
        train(changed, tmp_path / "other", resume=str(tmp_path / "run/checkpoint-5"))
    with pytest.raises(ConfigError, match=r"is not a step of the recipe \(expected 8 rows, got 4"):
        train(recipe, tmp_path / "other", gradient_accumulation_steps=1)


@pytest.mark.parametrize("size", [16, 3])
def test_a_trainer_evaluates_on_every_row_each_time_at_any_batch_size(
    recipe: Recipe, tmp_path: Path, size: int
) -> None:
    from tests.adapters.trainer_run import make

    # Two documents and 14 targets in each row: the mean over rows is the mean over tokens.
    write_store(tmp_path / "val", [8] * 40, first_token=900 - 320)
    source = Source(name="val", path=tmp_path / "val", rows="packed")
    val = recipe_of(source, seq_len=SEQ_LEN, global_batch_size=8, passes=1)
    evaluation = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": size}
    options = {"max_steps": 6, "save_strategy": "no", **evaluation}
    trainer = make(recipe, tmp_path / "run", val=val, **options)
    model: Any = trainer.model
    for parameter in model.parameters():
        parameter.data *= 8  # else all tokens are as likely, whatever came before them
    trainer.train()
    trainer.evaluate()
    trainer.evaluate()
    history = trainer.state.log_history
    losses = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
    assert len(losses) == 5  # after steps 2, 4 and 6, and twice when it was asked for
    assert len(set(losses[:3])) == 3
    assert losses[2] == losses[3] == losses[4]
    evaluated = torch.cat([batch["input_ids"] for batch in model.evaluated])
    shown = torch.cat([batch["input_ids"] for batch in FeedLoader(val)])[:20]
    assert torch.equal(evaluated, shown.repeat(5, 1))
    assert losses[4] == pytest.approx(evaluate(model, val).loss, rel=1e-6)
    batch = next(iter(FeedLoader(val)))
    with torch.no_grad():  # and it matters that the documents of a row do not see each other
        together = model(input_ids=batch["input_ids"]).logits
        apart = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits
    assert not torch.allclose(together, apart, atol=0.1)


@pytest.mark.soak
def test_trainers_in_two_processes_get_the_global_batches(
    recipe: Recipe, tmp_path: Path, ranks: Ranks
) -> None:
    ranks.launch("trainer", 2, tmp_path)
    assert ranks.finish() == [0, 0]
    given = np.concatenate([np.load(tmp_path / f"given-{rank}.npy") for rank in range(2)], axis=1)
    feed = Feed(recipe)
    assert given.tolist() == [feed.batch(step).input_ids.tolist() for step in range(9)]


def test_the_models_loss_is_the_feeds(recipe: Recipe) -> None:
    from tests.adapters.trainer_run import Recorded

    rows, model = FeedRows(recipe, epoch_steps=1), Recorded().double()
    items = rows.__getitems__(range(8))
    batch = {name: torch.stack([item[name] for item in items]) for name in items[0]}
    with torch.no_grad():
        found = model(**batch, num_items_in_batch=torch.tensor(1))
        inputs = {name: batch[name] for name in ("input_ids", "position_ids")}
        logits = model(**inputs).logits
    expected = next(iter(FeedLoader(recipe)))
    assert float(found.loss) == pytest.approx(float(loss_sum(logits.float(), expected)), rel=1e-5)
    shifted = batch["labels"][:, 1:]
    assert torch.equal(shifted, batch["shift_labels"][:, :-1])  # what a model that shifts sees


@pytest.mark.parametrize("world_size", [2, 4])
def test_accelerate_shares_out_and_skips_as_the_feed_does(recipe: Recipe, world_size: int) -> None:
    from accelerate.data_loader import (  # type: ignore[import-untyped]
        prepare_data_loader,
        skip_first_batches,
    )

    feed = Feed(recipe)
    for rank in range(world_size):
        loader = prepare_data_loader(
            DataLoader(FeedRows(recipe, epoch_steps=6), batch_size=8 // world_size),
            num_processes=world_size,
            process_index=rank,
        )
        loader.set_epoch(1)
        skipped = skip_first_batches(loader, 3)
        parts = list(skipped)
        assert len(parts) == 3
        for step, part in enumerate(parts, start=9):
            expected = feed.batch(step, rank=rank, world_size=world_size)
            assert part["input_ids"].tolist() == expected.input_ids.tolist()


def test_accelerate_shares_out_the_rows_of_an_evaluation_over_any_number_of_processes(
    recipe: Recipe,
) -> None:
    from accelerate.data_loader import prepare_data_loader

    sources = [replace(source, weight=1.0) for source in recipe.sources]
    val = replace(recipe, sources=sources, passes=1)
    shown = torch.cat([batch["input_ids"] for batch in FeedLoader(val)])
    rows = shown[: len(FeedRows(val))].tolist()
    for world_size in (2, 3, 5):
        loaders = [
            prepare_data_loader(
                DataLoader(FeedRows(val), batch_size=4),
                num_processes=world_size,
                process_index=rank,
            )
            for rank in range(world_size)
        ]
        parts = [[batch["input_ids"].tolist() for batch in loader] for loader in loaders]
        # Batch by batch, rank by rank; the last batches begin again, and metrics leave that out.
        joined = [row for batches in zip(*parts, strict=True) for part in batches for row in part]
        assert joined[: len(rows)] == rows
        assert joined[len(rows) :] == (rows * 2)[: len(joined) - len(rows)]


@pytest.mark.filterwarnings("ignore:.*fork")  # said by JAX, which takes no part in it
def test_rows_are_read_by_workers_too_and_travel_as_their_recipe(recipe: Recipe) -> None:
    rows = FeedRows(recipe, epoch_steps=6)
    assert len(pickle.dumps(rows)) < 6000
    assert torch.equal(pickle.loads(pickle.dumps(rows))[5]["input_ids"], rows[5]["input_ids"])
    loader = DataLoader(rows, batch_size=4, num_workers=2)
    found = torch.cat([batch["input_ids"] for batch in loader])
    whole = torch.cat([batch["input_ids"] for batch in FeedLoader(recipe, epoch_steps=6)])
    assert torch.equal(found, whole)


def test_consecutive_rows_are_the_feeds_however_many_are_taken_at_once(recipe: Recipe) -> None:
    rows, feed = FeedRows(recipe, epoch_steps=3), Feed(recipe)
    rows.set_epoch(1)
    expected = np.concatenate([feed.batch(step).input_ids for step in (3, 4, 5)])
    for size in (1, 3, 5, 16, 24):
        loader = DataLoader(rows, batch_size=size)
        found = torch.cat([batch["input_ids"] for batch in loader])
        assert found.tolist() == expected.tolist()


def test_rows_in_another_order_or_with_other_weights_are_refused(
    recipe: Recipe, tmp_path: Path
) -> None:
    rows = FeedRows(recipe, epoch_steps=6)
    with pytest.raises(ConfigError) as caught:
        next(iter(DataLoader(rows, sampler=[7, 3, 5, 4, 0], batch_size=5)))
    assert str(caught.value) == (
        "these are not rows of the run in its order (expected consecutive positions below 48, got "
        '7, 3, 5, 4, … (5)); sample in sequence (train_sampling_strategy="sequential"); rows of '
        "a recipe with passes may be taken in any order"
    )
    for wrong in ([0, 2], [47, 48], [-1, 0]):
        with pytest.raises(ConfigError, match="these are not rows of the run in its order"):
            rows.__getitems__(wrong)
    with pytest.raises(EndlessError, match="a run without end has no length"):
        len(FeedRows(recipe))
    with pytest.raises(
        ConfigError, match=r"no further epoch \(expected 9 steps in all, got epoch 1"
    ):
        FeedRows(replace(recipe, steps=9)).set_epoch(1)
    with pytest.raises(ConfigError, match="set gradient_accumulation_steps instead"):
        FeedRows(replace(recipe, grad_accum=2))
    write_store(tmp_path / "chat", [12, 25, 30, 18], sidecar="weights")
    chat = Source(name="chat", path=tmp_path / "chat", rows="packed")
    weighted = FeedRows(recipe_of(chat, seq_len=SEQ_LEN, passes=1))
    with pytest.raises(ConfigError, match="weights other than 0 and 1; this loss would ignore"):
        weighted.__getitems__(range(len(weighted)))
