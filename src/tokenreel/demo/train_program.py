"""The training program of the demo: the same run on any number of ranks, killed or not.

    python -m tokenreel.demo.train_program RECIPE FOLDER --rank 0 --world-size 1

Every tenth step replaces FOLDER/checkpoint.pt at once: weights, optimizer, and the state of
the feed. A run begins where it says, whatever the number of ranks that wrote it. Each rank
writes down the rows it trained on and the loss of each step (`step_record.py`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tokenreel.demo.model import TinyTransformer
from tokenreel.demo.run import CHECKPOINT_STEPS
from tokenreel.demo.step_record import Recorder
from tokenreel.feed.feed import Feed
from tokenreel.torch import FeedLoader, loss_sum

RATE, DECAYS = 3e-3, (0.9, 0.95)


def train(recipe: Path, folder: Path, *, rank: int, world_size: int) -> None:
    """Train from the last checkpoint to the recipe's end, as one rank of all."""
    loader = FeedLoader(recipe)
    model = TinyTransformer(vocab_size=vocabulary(loader.feed), seq_len=loader.feed.recipe.seq_len)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=DECAYS)
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["feed"])
    trained = DistributedDataParallel(model) if world_size > 1 else model
    with Recorder(folder, rank=rank, world_size=world_size) as recorder:
        for batch in loader:
            done = loader.feed.step
            part = loss_sum(trained(batch), batch) / loader.feed.weight_sum(done - 1)
            optimizer.zero_grad()
            (
                part * world_size
            ).backward()  # gradients of ranks are averaged, parts of a loss add up
            optimizer.step()
            loss = part.detach()
            if world_size > 1:
                dist.all_reduce(loss)
            recorder.write(done - 1, batch, loss=float(loss))  # before a checkpoint counts it
            if rank == 0 and done % CHECKPOINT_STEPS == 0:
                save(
                    checkpoint,
                    {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "feed": loader.state_dict(),
                    },
                )


def vocabulary(feed: Feed) -> int:
    """Return how many token ids the stores of a feed may hold."""
    return max(store.vocab_size or 0 for store in feed.stores)


def save(path: Path, content: dict[str, object]) -> None:
    """Put a new checkpoint in the place of the old one, at once."""
    waiting = path.with_suffix(".part")
    torch.save(content, waiting)
    waiting.replace(path)


def main() -> None:
    """Be one rank of a run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    args = parser.parse_args()
    if args.world_size > 1:
        meeting = (args.folder / f"ranks-{args.world_size}").absolute()
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=args.rank, world_size=args.world_size
        )
    train(args.recipe, args.folder, rank=args.rank, world_size=args.world_size)
    if args.world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
