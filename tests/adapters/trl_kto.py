"""The KTO loss of TRL's own trainer, and that of our batches, on the same records and models.

A program of its own, as trl_dpo.py is. All answers are in one batch and in the order of the
records, so that the same prompts and answers are put together for the KL term.

    python trl_kto.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-untyped]
from trl import KTOConfig, KTOTrainer  # type: ignore[import-not-found]
from trl_dpo import (  # type: ignore[import-not-found]
    BARE,
    BETA,
    SEQ_LEN,
    models_of,
    records_of,
    write_tokenizer,
)

import tokenreel
from tokenreel import Feed, Recipe, Source
from tokenreel.feed.fields import FIELDS, GROUP_FIELDS
from tokenreel.torch import Tensors, answer_logps, kto_losses, mismatched_answers, sdpa_mask

WEIGHTS = {"desirable_weight": 1.3, "undesirable_weight": 0.8}


def labelled(shape: str, count: int = 24) -> list[dict[str, Any]]:
    """Return records of one answer each, some desirable."""
    return [
        {"prompt": record["prompt"], "completion": record["chosen"], "label": number % 3 > 0}
        for number, record in enumerate(records_of(shape, count))
    ]


def trl_loss(
    folder: Path, tokenizer: Any, records: list[dict[str, Any]], loss_type: str
) -> tuple[float, float]:
    """Return the loss of TRL over all answers, and the KL term it found."""
    model, frozen = models_of(len(tokenizer))
    config = KTOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=len(records),
        loss_type=loss_type,
        beta=BETA,
        max_length=None,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_dropout=True,
        **WEIGHTS,
    )
    trainer = KTOTrainer(
        model=model,
        ref_model=frozen,
        args=config,
        train_dataset=Dataset.from_list(records),
        processing_class=tokenizer,
    )
    (inputs,) = trainer.get_train_dataloader()
    with torch.no_grad():
        loss = float(trainer.compute_loss(model, inputs))
    return loss, trainer._metrics["eval" if not model.training else "train"]["kl"][-1]


@torch.no_grad()
def our_loss(
    folder: Path, tokenizer: Any, template: Path, records: list[dict[str, Any]], *, has_kl: bool
) -> tuple[float, float, int]:
    """Return the loss over all answers of a batch, the KL term, and the number of answers."""
    model, frozen = models_of(len(tokenizer))
    store = folder / "store"
    tokenreel.build(
        records,
        out=store,
        tokenizer=folder / "tokenizer",
        template=str(template),
        pairs=True,
        progress=False,
    )
    rows = Source(name="p", path=store, rows="pairs", packing="single", shuffle=False)
    recipe = Recipe(seq_len=SEQ_LEN, global_batch_size=len(records), passes=1, sources=[rows])
    (batch,) = Feed(recipe)
    shown = Tensors((*FIELDS, *GROUP_FIELDS))(batch)

    def logps(which: Any, shown: Any) -> Any:
        logits = which(
            input_ids=shown["input_ids"],
            attention_mask=sdpa_mask(shown["segment_ids"]),
            position_ids=shown["position_ids"].long(),
        ).logits
        return answer_logps(logits, shown)

    kl = torch.zeros(())
    if has_kl:
        other = mismatched_answers(shown)
        kl = (logps(model, other).sums - logps(frozen, other).sums).mean().clamp(min=0)
    reference = logps(frozen, shown).sums
    losses = kto_losses(logps(model, shown), reference, kl=kl, beta=BETA, **WEIGHTS)
    return float(losses.mean()), float(kl), len(losses)


def main(folder: Path) -> None:
    told = {}
    for shape in ("explicit", "plain"):
        for loss_type in ("kto", "apo_zero_unpaired"):
            here = folder / f"{shape}, {loss_type}"
            here.mkdir(parents=True)
            tokenizer = write_tokenizer(here / "tokenizer")
            records = labelled(shape)
            expected, expected_kl = trl_loss(here / "trl", tokenizer, records, loss_type)
            template = here / "tokenizer"
            if shape == "plain":
                template = here / "bare.toml"
                template.write_text(BARE)
            loss, kl, count = our_loss(
                here, tokenizer, template, records, has_kl=loss_type == "kto"
            )
            told[here.name] = {"trl": expected, "ours": loss, "answers": count}
            told[here.name] |= {"trl_kl": expected_kl, "kl": kl}
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
