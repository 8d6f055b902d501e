"""Train on several processes, kill them, and go on with another number of them.

    torchrun --nproc-per-node 2 examples/ddp_resume.py STORE --folder run    # kill -9 it
    torchrun --nproc-per-node 3 examples/ddp_resume.py STORE --folder run    # goes on

A step is the same global batch on any number of ranks, each taking its part: 3 ranks share
8 rows as 3, 3 and 2. So are the losses, but for rounding. All ranks compare what they see
before the first step, so a rank with another store is an error on every rank and not a run
that is quietly wrong. examples/lost_replica.py goes on without a restart.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tokenreel import Recipe, Source
from tokenreel.demo.model import TinyTransformer  # your model goes here
from tokenreel.torch import FeedLoader, loss_sum


def main() -> None:
    """Be one of the ranks that torchrun started."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="of the checkpoint")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else "cpu"
    args.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = args.folder / "checkpoint.pt"

    source = Source(name="text", path=args.store)
    recipe = Recipe(seq_len=128, global_batch_size=8, seed=7, steps=args.steps, sources=[source])
    loader = FeedLoader(recipe, device=device)  # this rank's part of every step
    model = TinyTransformer(vocab_size=loader.feed.stores[0].vocab_size or 0, seq_len=128)
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["feed"])
    parallel = DistributedDataParallel(model)

    for batch in loader:
        step = loader.feed.step - 1
        # Parts of a loss add up to that of the step; DDP averages gradients, hence the factor.
        part = loss_sum(parallel(batch), batch) / loader.feed.weight_sum(step)
        optimizer.zero_grad()
        (part * world_size).backward()
        optimizer.step()
        loss = part.detach()
        dist.all_reduce(loss)
        if rank == 0:
            print(json.dumps({"step": step, "ranks": world_size, "loss": loss.item()}), flush=True)
            if (step + 1) % args.save_every == 0:
                saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**saved, "feed": loader.state_dict()}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
