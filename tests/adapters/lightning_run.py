"""A Lightning run over a feed; importing Lightning takes longer than running it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.adapters.making import SEQ_LEN, VOCAB
from tests.adapters.tiny_model import TinyModel, causal, segmented

from tokenreel.feed.recipe import Recipe
from tokenreel.torch import FeedLoader, evaluate, loss_by_source, loss_sum


class Module(lightning.LightningModule):
    """Trains and keeps the batches it was given."""

    def __init__(self, val: Recipe | None = None) -> None:
        super().__init__()
        self.val = val
        self.model = TinyModel(VOCAB, SEQ_LEN)
        self.given: list[dict[str, torch.Tensor]] = []
        self.validations: list[list[dict[str, torch.Tensor]]] = []
        self.losses: list[tuple[float, float]] = []

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        self.given.append(batch)
        logits = self.model(batch["input_ids"], batch["position_ids"].long(), causal)
        return loss_sum(logits, batch) / batch["loss_weights"].sum()

    def on_validation_start(self) -> None:
        self.validations.append([])
        self.sums = torch.zeros(2, 3, dtype=torch.float64)

    def validation_step(self, batch: dict[str, torch.Tensor], number: int) -> None:
        self.validations[-1].append(batch)
        logits = segmented(self.model, batch)
        self.sums += torch.stack(loss_by_source(logits, batch, num_sources=3))

    def on_validation_epoch_end(self) -> None:
        """Keep the mean loss, and that of an evaluation of the model as it is."""
        losses, weights = self.sums.sum(1).tolist()
        self.log("val_loss", losses / weights)
        if self.val is not None and not self.trainer.sanity_checking:
            alone = evaluate(self.model, self.val, forward=segmented)
            self.losses.append((losses / weights, alone.loss))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(
    recipe: Recipe,
    folder: Path,
    *,
    resume: Path | None = None,
    val: Recipe | None = None,
    val_check_interval: int | None = None,
    **options: Any,
) -> Module:
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=12,
        val_check_interval=val_check_interval,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=-1)],
    )
    module = Module(val)
    trainer.fit(
        module,
        FeedLoader(recipe, **options),
        None if val is None else FeedLoader(val),
        ckpt_path=resume,
        weights_only=False,
    )
    return module
