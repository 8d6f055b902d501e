"""Train on preferences with DPO: pairs packed into rows, a group never parted.

    python examples/dpo_pairs.py --folder run pairs.jsonl --tokenizer tokenizer.json
    python examples/dpo_pairs.py --folder run              # pairs that prefer the right sum

A line is {"prompt": …, "chosen": …, "rejected": …}, texts or lists of messages; the prompt may
also be what chosen and rejected have in common. Each answer is a segment of its row: attention
and positions stay within it, and the loss of a pair needs no row but its own. With --padded each
answer has a row, for models that know no segments. Both print the same losses.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
from pathlib import Path

import torch

import tokenreel
from tokenreel import Recipe, Source
from tokenreel.demo.model import TinyTransformer  # your model goes here
from tokenreel.torch import FeedLoader, answer_logps, dpo_losses, padded_answers

SEQ_LEN = 256


def write_pairs(path: Path, *, count: int = 400) -> Path:
    """Write pairs of a right sum and a wrong one, and return the path."""
    chance, lines = random.Random(0), []
    for _ in range(count):
        left, right = chance.randrange(50), chance.randrange(50)
        wrong = left + right + chance.choice([-10, -1, 1, 10])
        pair = {"chosen": f"It is {left + right}.", "rejected": f"Maybe {wrong}?"}
        lines.append(json.dumps({"prompt": f"What is {left} + {right}?", **pair}))
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> None:
    """Build, look at a pair, train."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pairs", nargs="?", help="a JSONL file")
    parser.add_argument("--folder", type=Path, required=True, help="of the store")
    parser.add_argument("--tokenizer", default="byte")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--padded", action="store_true", help="one answer a row")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    pairs = args.pairs or write_pairs(args.folder / "pairs.jsonl")
    path = args.folder / "store"
    store = tokenreel.build(pairs, out=path, tokenizer=args.tokenizer, pairs=True).store

    # A group that does not fit into a row is left out and counted; truncation would cut answers.
    source = Source(name="pairs", path=path, rows="pairs")
    recipe = Recipe(
        seq_len=SEQ_LEN, global_batch_size=4, seed=7, steps=args.steps, sources=[source]
    )
    loader = FeedLoader(recipe, device=args.device)
    print(store["train"].document(0))
    print(f"{loader.feed.plans[0].ledger['groups']} pairs in {loader.feed.plans[0].num_rows} rows")

    model = TinyTransformer(vocab_size=store.vocab_size or 0, seq_len=SEQ_LEN).to(args.device)
    frozen = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in loader:
        shown = padded_answers(batch) if args.padded else batch
        policy = answer_logps(model(shown), shown)
        with torch.no_grad():
            reference = answer_logps(frozen(shown), shown).sums
        # With more ranks: the sum of this rank's losses, by the pairs of the global step.
        num_pairs = loader.feed.denominators(loader.feed.step - 1).samples / 2
        loss = dpo_losses(policy, reference, beta=args.beta).sum() / num_pairs
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {loader.feed.step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
