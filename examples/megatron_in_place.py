"""Train on Megatron's .bin/.idx as they lie: nothing is copied, converted or written there.

    python examples/megatron_in_place.py data/my_text_document --vocab-size 50257
    python examples/megatron_in_place.py data/                  # a folder of pairs

Opening reads a few numbers of the index. The documents of the index are known, so rows can
be cut by document or packed, and each row says which documents it shows. The same holds for
nanoGPT's train.bin, tatm's folders and the other layouts: only the path changes.
"""

from __future__ import annotations

import argparse

import torch

import tokenreel
from tokenreel import Recipe, Source
from tokenreel.demo.model import TinyTransformer  # your model goes here
from tokenreel.torch import FeedLoader, loss_sum


def main() -> None:
    """Open, train, look up."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", help="the prefix of a pair, either file, or a folder of pairs")
    parser.add_argument("--vocab-size", type=int, help="checked; the files do not say it")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    store = tokenreel.open_store(args.path, vocab_size=args.vocab_size)
    print(store)
    print(f"{store.num_documents:,} documents, {store.num_tokens:,} tokens, {store.dtype}")

    source = Source(
        name="pairs", path=args.path, rows="document_windows", vocab_size=args.vocab_size
    )
    recipe = Recipe(seq_len=128, global_batch_size=8, seed=7, steps=args.steps, sources=[source])
    loader = FeedLoader(recipe)
    model = TinyTransformer(vocab_size=args.vocab_size or 2**16, seq_len=128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for batch in loader:
        loss = loss_sum(model(batch), batch) / batch["loss_weights"].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"step {loader.feed.step - 1}: loss {losses[-1]:.4f}", flush=True)

    worst = max(range(len(losses) // 2, len(losses)), key=losses.__getitem__)
    print(f"in step {worst}, the worst of the second half:")
    for row in loader.feed.explain(worst).rows:
        shown = ", ".join(f"document {segment.document}" for segment in row.segments)
        print(f"  row {row.row}: {shown}")


if __name__ == "__main__":
    main()
