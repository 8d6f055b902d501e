"""A real Lightning loop over a FeedLoader: its checkpoints carry the feed's state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.adapters.making import SEQ_LEN, VOCAB, equals, mixed_recipe, write_stores
from tests.adapters.tiny_model import TinyModel, causal

from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.torch import FeedLoader, loss_sum


class Module(lightning.LightningModule):
    """Trains and keeps the batches it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.model = TinyModel(VOCAB, SEQ_LEN)
        self.given: list[dict[str, torch.Tensor]] = []

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        self.given.append(batch)
        logits = self.model(batch["input_ids"], batch["position_ids"].long(), causal)
        return loss_sum(logits, batch) / batch["loss_weights"].sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(recipe: Recipe, folder: Path, *, resume: Path | None = None, **options: Any) -> Module:
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=12,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=-1)],
    )
    module = Module()
    trainer.fit(module, FeedLoader(recipe, **options), ckpt_path=resume, weights_only=False)
    return module


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_run_resumed_in_mid_epoch_is_the_uninterrupted_one(tmp_path: Path) -> None:
    write_stores(tmp_path)
    recipe = mixed_recipe(tmp_path)
    feed = Feed(recipe)
    whole = fit(recipe, tmp_path / "run", epoch_steps=5)
    assert len(whole.given) == 12
    assert all(equals(batch, feed.batch(step)) for step, batch in enumerate(whole.given))
    for epoch, step in ((0, 3), (1, 9)):
        saved = tmp_path / "run" / f"epoch={epoch}-step={step}.ckpt"
        resumed = fit(recipe, tmp_path / f"from-{step}", resume=saved, epoch_steps=5)
        assert len(resumed.given) == 12 - step
        assert all(equals(b, feed.batch(step + n)) for n, b in enumerate(resumed.given))
        for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
            assert torch.equal(one, other)


def test_accelerate_leaves_a_feed_loader_as_it_is(tmp_path: Path) -> None:
    write_stores(tmp_path)
    loader = FeedLoader(mixed_recipe(tmp_path))
    assert Accelerator(cpu=True).prepare(loader) is loader
