"""Pretrain on your text with torch; kill it at any moment, run it again, it goes on.

    python examples/pretrain_torch.py --folder run "docs/*.jsonl" --tokenizer tokenizer.json
    python examples/pretrain_torch.py --folder run          # on Python's own library, as bytes

The store is built once; a build that was killed goes on too. A checkpoint holds the weights,
the optimizer and the state of the feed, which is a step and a fingerprint: resuming reads no
old batches, and a checkpoint of other data is refused. More --steps later go on as well.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch

import tokenreel
from tokenreel import Recipe, Source
from tokenreel.demo.model import TinyTransformer  # your model goes here
from tokenreel.torch import FeedLoader, evaluate, loss_sum

LIBRARY = str(Path(os.__file__).parent / "*.py")


def main() -> None:
    """Build, train, save, validate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", nargs="*", default=[LIBRARY], help="files, folders or globs")
    parser.add_argument("--folder", type=Path, required=True, help="of store and checkpoint")
    parser.add_argument("--tokenizer", default="byte")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    path, checkpoint = args.folder / "store", args.folder / "checkpoint.pt"
    store = tokenreel.build(
        args.text, out=path, tokenizer=args.tokenizer, val_frac=0.05, workers=2
    ).store
    print(f"{store.num_documents:,} documents, {store.num_tokens:,} tokens")

    recipe = Recipe(
        seq_len=128,
        global_batch_size=16,
        seed=7,
        steps=args.steps,
        sources=[Source(name="a", path=path)],
    )
    loader = FeedLoader(recipe, device=args.device)
    model = TinyTransformer(vocab_size=store.vocab_size or 0, seq_len=128).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=args.device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["feed"])
        print(f"resumed at step {loader.feed.step}")

    for batch in loader:
        loss = loss_sum(model(batch), batch) / batch["loss_weights"].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step = loader.feed.step  # how many are done
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if step % args.save_every == 0 or step == args.steps:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**saved, "feed": loader.state_dict()}, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)  # the old one, or the new one

    print(f"validation loss {validate(model, path, device=args.device):.4f}")


def validate(model: TinyTransformer, path: Path, *, device: str) -> float:
    """Return the mean loss over every token of the split that was kept apart."""
    source = Source(name="val", path=path, split="val")
    recipe = Recipe(seq_len=128, global_batch_size=16, passes=1, sources=[source])
    return evaluate(model, recipe, forward=lambda model, batch: model(batch), device=device).loss


if __name__ == "__main__":
    main()
