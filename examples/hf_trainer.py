"""Train a model of transformers with its Trainer; interrupted, it goes on with the next batch.

    python examples/hf_trainer.py STORE --folder run
    accelerate launch --num_processes 2 examples/hf_trainer.py STORE --folder run

The Trainer batches, shares out and skips by index, so it is given rows by their position in
the run, in sequence: mixing and shuffling are the recipe's. FeedCallback puts the state of
the feed into the Trainer's checkpoints and refuses to resume on other data.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from tokenreel import Recipe, Source
from tokenreel.torch import FeedRows
from tokenreel.torch.trainer import FeedCallback

BATCH_SIZE = 16  # rows of a step over all processes


def main() -> None:
    """Train from the last checkpoint on, if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="of the checkpoints")
    parser.add_argument("--rows", default="packed", help="windows, document_windows or packed")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    args = parser.parse_args()
    source = Source(name="text", path=args.store, rows=args.rows)
    recipe = Recipe(
        seq_len=128, global_batch_size=BATCH_SIZE, seed=7, steps=args.steps, sources=[source]
    )
    rows = FeedRows(recipe)

    set_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=rows.feed.stores[0].vocab_size or 0,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=128,
        )
    )
    arguments = TrainingArguments(
        output_dir=str(args.folder),
        max_steps=args.steps,
        save_steps=args.save_every,
        logging_steps=1,
        learning_rate=3e-3,
        per_device_train_batch_size=BATCH_SIZE // int(os.environ.get("WORLD_SIZE", "1")),
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=[],
    )
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[FeedCallback(rows)])
    last = get_last_checkpoint(str(args.folder)) if args.folder.exists() else None
    print(f"resuming from {last}" if last else "from the beginning", flush=True)
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
