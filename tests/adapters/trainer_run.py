"""A run of the Trainer on a feed; importing transformers takes longer than running it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from tests.adapters.making import SEQ_LEN, VOCAB
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from tokenreel.feed.recipe import Recipe
from tokenreel.torch import FeedRows
from tokenreel.torch.trainer import FeedCallback

EPOCH_STEPS = 7


class Recorded(LlamaForCausalLM):
    """A tiny model that keeps what it was given."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(
            LlamaConfig(
                vocab_size=VOCAB,
                hidden_size=16,
                intermediate_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=SEQ_LEN,
            )
        )
        self.given: list[dict[str, torch.Tensor]] = []
        self.evaluated: list[dict[str, torch.Tensor]] = []

    def forward(self, labels: torch.Tensor | None = None, **inputs: Any) -> Any:
        """Compute as ever; the Trainer looks for labels by this name."""
        (self.given if self.training else self.evaluated).append(inputs)
        return super().forward(labels=labels, **inputs)


def train(recipe: Recipe, folder: Path, *, resume: str | None = None, **options: Any) -> Recorded:
    trainer = make(recipe, folder, **options)
    trainer.train(resume_from_checkpoint=resume)
    return cast(Recorded, trainer.model)


def make(recipe: Recipe, folder: Path, *, val: Recipe | None = None, **options: Any) -> Trainer:
    """Return a Trainer; its steps are those of the recipe."""
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "max_steps": 12,
        "save_steps": 5,
        **options,
    }
    arguments = TrainingArguments(
        output_dir=str(folder),
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        **settings,
    )
    rows, model = FeedRows(recipe, epoch_steps=EPOCH_STEPS), Recorded()
    return Trainer(
        model,
        arguments,
        train_dataset=rows,
        eval_dataset=None if val is None else FeedRows(val),
        callbacks=[FeedCallback(rows)],
    )
