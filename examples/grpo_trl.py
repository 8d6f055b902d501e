"""Train with TRL's GRPOTrainer on prompts of a feed; interrupted, it goes on with the next ones.

    tokenreel build sums.jsonl --prompts --text-key question --tokenizer MODEL --out sums
    python examples/grpo_trl.py sums --model MODEL --folder run
    accelerate launch --num_processes 2 examples/grpo_trl.py sums --model MODEL --folder run

A line of sums.jsonl is {"id": 0, "question": "3+4=", "answer": "7"}; MODEL is a folder or a name,
with the tokenizer that the store was built with. GRPOTrainer shuffles, repeats and tokenizes the
prompts of a dataset. Here the feed has done all three: the trainer is given ids, each prompt
GENERATIONS times in a row, and the rest of its record, which the reward function sees by the names
of its fields. FeedCallback puts the state of the feed into the trainer's checkpoints and refuses to
resume on other data. Written for TRL 1.16, of which it overrides one method that is not public.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-untyped]
from torch.utils.data import DataLoader, IterableDataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

from tokenreel import Feed, Recipe, Source
from tokenreel.torch import FeedLoader
from tokenreel.torch.trainer import FeedCallback

PROMPT_TOKENS, NEW_TOKENS, PROMPTS, GENERATIONS = 64, 8, 4, 4  # PROMPTS: of a step


class FeedGRPOTrainer(GRPOTrainer):
    """GRPOTrainer with the prompts of a feed, in the feed's order, as the ids that were built."""

    def __init__(self, loader: FeedLoader, **given: Any) -> None:
        unused = Dataset.from_dict({"prompt": [""]})  # the trainer does not begin without one
        super().__init__(train_dataset=unused, callbacks=[FeedCallback(loader)], **given)
        self._feed = loader.feed

    def get_train_dataloader(self) -> DataLoader:
        """Return this process's part of every step, from the step of the checkpoint on."""
        return DataLoader(_Prompts(self._feed, self), batch_size=None, collate_fn=lambda rows: rows)

    def _tokenize_prompts(self, prompts: list) -> tuple[list, None, dict]:
        return prompts, None, {}  # they are ids already


class _Prompts(IterableDataset):
    def __init__(self, feed: Feed, trainer: GRPOTrainer) -> None:
        self._feed, self._trainer = feed, trainer

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        args, state = self._trainer.args, self._trainer.state
        rank, world_size = args.process_index, args.world_size
        for step in range(state.global_step, args.max_steps):
            batch = self._feed.batch(step, rank=rank, world_size=world_size, extra=("records",))
            records = batch.records or []
            rows = [
                {**record, "prompt": ids[segments > 0].tolist()}  # without padding
                for ids, segments, record in zip(
                    batch.input_ids, batch.segment_ids, records, strict=True
                )
            ]
            # The trainer asks for each microbatch, and answers all prompts with the first.
            for _ in range(args.gradient_accumulation_steps):
                yield rows


def is_right(completions: list[str], answer: list[str], id: list[int], **_: Any) -> list[float]:
    """Return a point for each completion that begins with the answer of its record."""
    print(f"asked {id}", flush=True)
    return [float(said.startswith(right)) for said, right in zip(completions, answer, strict=True)]


def main() -> None:
    """Train from the last checkpoint on, if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of the checkpoints")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    args = parser.parse_args()
    source = Source(name="sums", path=args.store, rows="prompts", repeats=GENERATIONS)
    rows = PROMPTS * GENERATIONS
    recipe = Recipe(seq_len=PROMPT_TOKENS, global_batch_size=rows, seed=7, sources=[source])
    config = GRPOConfig(
        output_dir=str(args.folder),
        max_steps=args.steps,
        save_steps=args.save_every,
        logging_steps=1,
        per_device_train_batch_size=rows // int(os.environ.get("WORLD_SIZE", "1")),
        num_generations=GENERATIONS,
        max_completion_length=NEW_TOKENS,
        ignore_data_skip=True,  # the feed begins where the checkpoint is
        remove_unused_columns=False,  # the reward needs them
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        report_to=[],
    )
    trainer = FeedGRPOTrainer(
        FeedLoader(recipe),
        model=AutoModelForCausalLM.from_pretrained(args.model),
        processing_class=AutoTokenizer.from_pretrained(args.model),
        reward_funcs=is_right,
        args=config,
    )
    last = get_last_checkpoint(str(args.folder)) if args.folder.exists() else None
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
