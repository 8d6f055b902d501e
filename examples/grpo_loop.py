"""Answer prompts, compare the answers in groups, learn from the better ones: GRPO in one loop.

    tokenreel build sums.jsonl --prompts --text-key question --tokenizer byte --out sums
    python examples/grpo_loop.py sums --folder run                                # kill -9 it
    torchrun --nproc-per-node 3 examples/grpo_loop.py sums --folder run           # goes on

A line of sums.jsonl is {"id": 0, "question": "3+4=", "answer": "7"}. The question becomes tokens;
the rest stays with it as its record, from which the reward is found. Each prompt stands in REPEATS
rows side by side: the group whose answers are compared. On any number of ranks a step has the same
prompts and, as chance is drawn by the row's seat in the step, the same answers.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from tokenreel import Recipe, Source
from tokenreel.demo.model import TinyTransformer  # your model goes here
from tokenreel.torch import FeedLoader

PROMPT_TOKENS, NEW_TOKENS, ROWS, REPEATS = 16, 2, 24, 4  # of a row, an answer, a step, a group
FIELDS = ("input_ids", "segment_ids", "position_ids", "source_ids", "records")


def answer(model: TinyTransformer, asked: dict[str, Tensor], chance: Tensor) -> dict[str, Tensor]:
    """Return the prompts, padded on the left, with sampled tokens behind them."""
    told = dict(asked)
    for number in range(NEW_TOKENS):
        with torch.no_grad():
            logits = model(told)[:, -1]
        chosen = (logits - chance[:, number].log().neg().log()).argmax(1)  # Gumbel's way
        following = (chosen, told["segment_ids"][:, -1], told["position_ids"][:, -1] + 1)
        told = {
            name: torch.cat([told[name], new[:, None].to(told[name].dtype)], 1)
            for name, new in zip(told, following, strict=True)
        }
    return told


def main() -> None:
    """Be the only process, or one of the ranks that torchrun started."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="of the checkpoint")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    args = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    args.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = args.folder / "checkpoint.pt"

    source = Source(name="sums", path=args.store, rows="prompts", repeats=REPEATS)
    recipe = Recipe(
        seq_len=PROMPT_TOKENS, global_batch_size=ROWS, seed=7, steps=args.steps, sources=[source]
    )
    loader = FeedLoader(recipe, fields=FIELDS)  # this rank's part of every step
    vocab_size = loader.feed.stores[0].vocab_size or 0
    model = TinyTransformer(vocab_size=vocab_size, seq_len=PROMPT_TOKENS + NEW_TOKENS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["feed"])

    for batch in loader:
        step, count = loader.feed.step - 1, int((batch["source_ids"] >= 0).sum())
        seats = torch.arange(count) + rank * ROWS // ranks  # what else the part has is padding
        asked = {name: batch[name][:count] for name in FIELDS[:3]}
        records = batch["records"][:count]
        draws = [torch.Generator().manual_seed(step * ROWS + seat) for seat in seats.tolist()]
        chance = [torch.rand(NEW_TOKENS, vocab_size, generator=draw) for draw in draws]
        told = answer(model, asked, torch.stack(chance))
        answers = told["input_ids"][:, PROMPT_TOKENS:]

        # A group may lie on two ranks: every rank sees the rewards of all rows.
        rewards = torch.zeros(ROWS)
        for seat, ids, record in zip(seats.tolist(), answers.tolist(), records, strict=True):
            right = record["answer"].encode()  # a point for each byte that is right
            rewards[seat] = sum(a == b for a, b in zip(ids, right, strict=False))
        if dist.is_initialized():
            dist.all_reduce(rewards)
        groups = rewards.reshape(-1, REPEATS)
        better = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        advantage = better.reshape(-1)[seats]

        inputs = {name: told[name][:, :-1] for name in told}
        likely = model(inputs)[:, PROMPT_TOKENS - 1 :].log_softmax(-1)
        likely = likely.gather(2, answers[..., None])[..., 0]
        loss = -(advantage[:, None] * likely).sum() / (ROWS * NEW_TOKENS)
        optimizer.zero_grad()
        loss.backward()
        for weight in model.parameters() if dist.is_initialized() else ():
            dist.all_reduce(weight.grad)  # parts of a loss add up to that of the step
        optimizer.step()
        said = {"step": step, "rank": rank, "ranks": ranks, "reward": rewards.mean().item()}
        print(json.dumps({**said, "asked": [record["id"] for record in records]}), flush=True)
        if rank == 0 and (step + 1) % args.save_every == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**saved, "feed": loader.state_dict()}, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)


if __name__ == "__main__":
    main()
