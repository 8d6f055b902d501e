"""What trains every label of a batch never trains a rejected answer unless it is told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.adapters.tiny_model import TinyModel, segmented
from tests.builder.test_pairs import preferences
from tests.dropin.making import config

import tokenreel
import tokenreel.jax
from tokenreel import Feed, Recipe, Source
from tokenreel.dropin import GPTDataLoader, MemoryMappedDataset
from tokenreel.dropin.caches.cache_parts import open_shards
from tokenreel.dropin.mapped.prepare import prepare
from tokenreel.errors import ConfigError
from tokenreel.grain import FeedSource
from tokenreel.torch import (
    FeedDataset,
    FeedLoader,
    FeedRows,
    GetBatch,
    Tensors,
    answer_logps,
    evaluate,
    loss_by_source,
    loss_sum,
)
from tokenreel.torch.trainer import FeedCallback

SEQ_LEN = 320
QUIET: dict[str, Any] = {"tokenizer": "byte", "progress": False}
NARROW = ("input_ids", "labels", "loss_weights")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    pairs = [record for record in preferences(40) if "chosen" in record]
    tokenreel.build(pairs, out=folder / "pairs", pairs=True, **QUIET)
    asked = [{"prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in range(40)]
    tokenreel.build(asked, out=folder / "prompts", prompts=True, **QUIET)
    tokenreel.build(texts=["some text. " * 60] * 9, out=folder / "windows", **QUIET)
    return folder


def recipe(stores: Path, *kinds: Any, **options: Any) -> Recipe:
    sources = [Source(name=kind, path=stores / kind, rows=kind) for kind in kinds]
    given = {"seq_len": SEQ_LEN, "global_batch_size": 6, "seed": 3, **options}
    return Recipe(sources=sources, **given)


def test_rows_for_a_trainer_are_not_made_of_pairs_or_prompts(stores: Path) -> None:
    with pytest.raises(ConfigError, match=r"'pairs' .*rejected answers.*dpo_pairs\.py"):
        FeedRows(recipe(stores, "pairs"))
    with pytest.raises(ConfigError, match=r"'pairs' .*rejected answers"):
        FeedRows(Feed(recipe(stores, "windows", "pairs")))
    with pytest.raises(ConfigError, match=r"'prompts' .*no token of them is a label.*grpo_loop"):
        FeedRows(recipe(stores, "prompts"))
    assert len(FeedRows(recipe(stores, "windows", passes=1))) > 0


def test_a_trainer_that_asks_prompts_keeps_the_state_of_a_loader(stores: Path) -> None:
    from transformers import TrainerControl, TrainerState, TrainingArguments

    loader = FeedLoader(recipe(stores, "prompts"))
    args = TrainingArguments(output_dir="unused", per_device_train_batch_size=6, use_cpu=True)
    state = TrainerState(global_step=3)
    FeedCallback(loader).on_step_end(args, state, TrainerControl())
    kept: Any = state.stateful_callbacks
    assert kept["tokenreel"] == {**loader.state_dict(), "step": 3}


@pytest.mark.parametrize("kind", ["pairs", "prompts"])
def test_get_batch_reads_neither_pairs_nor_prompts(stores: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=f'rows="{kind}"'):
        GetBatch(stores / kind, block_size=16, batch_size=2)


@pytest.mark.parametrize("adapter", [FeedLoader, FeedDataset, tokenreel.jax.FeedLoader, FeedSource])
def test_labels_of_pairs_never_come_without_their_groups(
    stores: Path, adapter: Callable[..., Any]
) -> None:
    pairs = recipe(stores, "pairs")
    made = adapter(pairs)
    batch = made[0] if adapter is FeedSource else next(iter(made))
    assert {"labels", "group_ids", "answer_labels"} <= set(batch)
    with pytest.raises(ConfigError, match=r"labels of pairs without group_ids.*leave fields out"):
        adapter(pairs, fields=NARROW)
    adapter(pairs, fields=("input_ids", "segment_ids"))
    adapter(recipe(stores, "windows"), fields=NARROW)


def mixed_batch(stores: Path) -> dict[str, torch.Tensor]:
    feed = Feed(recipe(stores, "windows", "pairs"))
    batch = next(
        item for item in map(feed.batch, range(20)) if set(item.source_ids.tolist()) == {0, 1}
    )
    fields = [*tokenreel.torch.FIELDS, "group_ids", "answer_labels"]
    return Tensors(fields)(batch)


@torch.no_grad()
def test_a_loss_over_all_labels_refuses_answers_unless_told_what_they_count(stores: Path) -> None:
    batch = mixed_batch(stores)
    logits = segmented(TinyModel(259, SEQ_LEN, dtype=torch.float64), batch)
    with pytest.raises(ConfigError, match=r"would train the rejected.*dpo_losses.*left_out"):
        loss_sum(logits, batch)
    with pytest.raises(ConfigError, match=r"would train the rejected"):
        loss_by_source(logits, batch, num_sources=2)
    wrong: Any = "chosen"
    with pytest.raises(ConfigError, match=r"bad answers .expected 'left_out' or 'as_text'"):
        loss_sum(logits, batch, answers=wrong)
    # Row by row: what is left out is what answer_logps adds up, and the rest is the text.
    of_answers = -float(answer_logps(logits, batch).sums.sum())
    of_all = float(loss_sum(logits, batch, answers="as_text"))
    of_text = float(loss_sum(logits, batch, answers="left_out"))
    assert 0 < of_text < of_all == pytest.approx(of_text + of_answers, rel=1e-9)
    sums, weights = loss_by_source(logits, batch, num_sources=2, answers="left_out")
    rows = batch["source_ids"] == 0
    assert sums.tolist() == pytest.approx([of_text, 0.0], rel=1e-9)
    assert weights.tolist() == [float(batch["loss_weights"][rows].sum()), 0.0]


def test_jaxs_loss_refuses_answers_and_leaves_them_out_as_torchs_does(stores: Path) -> None:
    batch = mixed_batch(stores)
    arrays = {name: np.asarray(values) for name, values in batch.items()}
    logits = np.random.default_rng(0).normal(size=(*batch["labels"].shape, 259))
    logits = logits.astype(np.float32)
    with pytest.raises(ConfigError, match=r"would train the rejected"):
        tokenreel.jax.loss_by_source(logits, arrays, num_sources=2)
    ways: list[Any] = ["left_out", "as_text"]
    for answers in ways:
        options: dict[str, Any] = {"num_sources": 2, "answers": answers}
        ours = tokenreel.jax.loss_by_source(logits, arrays, **options)
        theirs = loss_by_source(torch.from_numpy(logits), batch, **options)
        for found, expected in zip(ours, theirs, strict=True):
            assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_an_evaluation_over_prompts_is_refused_with_the_reason(stores: Path) -> None:
    model = TinyModel(259, SEQ_LEN)
    for kinds in (("prompts",), ("windows", "prompts")):
        asked = recipe(stores, *kinds, passes=1)
        with pytest.raises(ConfigError, match=r"'prompts' .*no token of them is a label"):
            evaluate(model, asked, forward=segmented)
        with pytest.raises(ConfigError, match=r"'prompts' .*no token of them is a label"):
            tokenreel.jax.evaluate(lambda batch: batch["labels"], asked)


def test_drop_ins_that_read_tokens_as_text_refuse_stores_of_answers(stores: Path) -> None:
    readers: list[Callable[[Path], object]] = [
        lambda path: GPTDataLoader(config(), None, path),
        lambda path: MemoryMappedDataset(path, 8, "*.bin"),
        lambda path: MemoryMappedDataset(path / "train", 8, "*.bin"),
        lambda path: open_shards(path / "train"),
        prepare,
    ]
    for read in readers:
        assert read(stores / "windows")
        with pytest.raises(ConfigError, match=r"rejected ones would be trained as text.*pairs"):
            read(stores / "pairs")
