"""A Lightning run over a feed; importing Lightning takes longer than running it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.adapters.making import SEQ_LEN, VOCAB
from tests.adapters.tiny_model import TinyModel, causal

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
