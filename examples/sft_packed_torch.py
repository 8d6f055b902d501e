"""Fine-tune on chats, many packed into a row, that do not see each other.

    python examples/sft_packed_torch.py --folder run chats.jsonl --tokenizer tokenizer.json
    python examples/sft_packed_torch.py --folder run        # docstrings of Python's own library

A line is {"messages": [{"role": …, "content": …}, …]} (ShareGPT and instruction records are
read as well). Only what the assistant says is trained. Packing fills nearly every slot;
attention stays within a chat by its segment ids, with SDPA or FlexAttention.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch.nn.attention.flex_attention import flex_attention

import tokenreel
from tokenreel import Recipe, Source
from tokenreel.demo.corpus import write_chats
from tokenreel.demo.model import Attend, TinyTransformer, within_segments  # your model goes here
from tokenreel.torch import FeedLoader, block_mask, loss_sum

SEQ_LEN = 512


def attention(segment_ids: torch.Tensor) -> Attend:
    """Return attention within segments: FlexAttention on a GPU, SDPA with a mask elsewhere."""
    if segment_ids.device.type == "cuda":
        return flex_within_segments(segment_ids)
    return within_segments(segment_ids)


def flex_within_segments(segment_ids: torch.Tensor) -> Attend:
    """Return attention that leaves out what no token may see; compile the model to make it fast."""
    mask = block_mask(segment_ids)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return flex_attention(query, key, value, block_mask=mask)

    return attend


def main() -> None:
    """Build, look at what is trained, train."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chats", nargs="?", help="a JSONL file")
    parser.add_argument("--folder", type=Path, required=True, help="of the store")
    parser.add_argument("--tokenizer", default="byte")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    chats = args.chats or write_chats(args.folder / "chats.jsonl", limit=1000)
    path = args.folder / "store"
    store = tokenreel.build(chats, out=path, tokenizer=args.tokenizer, chat=True).store

    # A chat that is too long loses its oldest turns whole; one left without an answer is dropped.
    source = Source(name="chats", path=path, rows="packed")
    recipe = Recipe(
        seq_len=SEQ_LEN, global_batch_size=4, seed=7, steps=args.steps, sources=[source]
    )
    loader = FeedLoader(recipe, device=args.device)
    first = loader.feed.batch(0)
    shares = {"padding": 1 - first.attention_mask.mean(), "trained": first.loss_mask.mean()}
    print(", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items()))
    answer = first.labels[0][first.segment_ids[0] == first.segment_ids[0].max()]
    text = tokenreel.load_tokenizer(args.tokenizer).decode(answer[answer >= 0])
    print(f"trained of the last chat in the first row: {text!r}")

    model = TinyTransformer(vocab_size=store.vocab_size or 0, seq_len=SEQ_LEN).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for batch in loader:
        logits = model(batch, attention(batch["segment_ids"]))
        loss = loss_sum(logits, batch) / batch["loss_weights"].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {loader.feed.step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
