"""tokenreel for PyTorch: batches as tensors over the feed's own memory.

    FeedLoader    for your own loop, Lightning, or wherever an iterable of batches is wanted
    FeedDataset   the same as an IterableDataset of ready batches, for torch's DataLoader and
                  torchdata's StatefulDataLoader (with batch_size=None)
    FeedRows      single rows by position, for frameworks that batch, share out and skip by
                  index: the Hugging Face Trainer, Accelerate
    sdpa_mask, block_mask, cu_seqlens
                  keep the segments of a packed row apart in attention
    loss_sum, loss_by_source
                  what a mean over the tokens of a global step, or of each source, is made of
    answer_logps, dpo_losses, kto_losses, mismatched_answers, padded_answers
                  log-probabilities of the answers in rows of pairs, DPO's loss, KTO's loss and what
                  it is measured by, one answer a row
    GetBatch      get_batch(split) over train.bin and val.bin, as nanoGPT has it
    evaluate      mean loss and perplexity over every token of a recipe, and of each source

A batch is a dict of tensors: input_ids, labels (shifted, -100 where ignored),
loss_weights, segment_ids, position_ids, attention_mask, source_ids; of rows of pairs also
group_ids and answer_labels. Ranks are those of
torch.distributed when it is running, or given; all ranks compare what they see before
the first step. `tokenreel.torch.trainer` has what needs transformers.

>>> import tempfile, tokenreel
>>> path = tempfile.mkdtemp() + "/s"
>>> with tokenreel.StoreWriter(path, vocab_size=100) as writer:
...     writer.add(range(100))
>>> recipe = tokenreel.Recipe(seq_len=8, global_batch_size=4, seed=7,
...     sources=[tokenreel.Source(name="a", path=path)])
>>> loader = FeedLoader(recipe, epoch_steps=3)
>>> [tuple(batch["input_ids"].shape) for batch in loader]
[(4, 8), (4, 8), (4, 8)]
>>> loader.state_dict()["step"]
3
"""

from __future__ import annotations

from tokenreel.feed.fields import FIELDS
from tokenreel.torch.attention import block_mask, cu_seqlens, sdpa_mask
from tokenreel.torch.dataset import FeedDataset
from tokenreel.torch.evaluate import evaluate
from tokenreel.torch.feed_rows import FeedRows
from tokenreel.torch.get_batch import GetBatch
from tokenreel.torch.loader import FeedLoader
from tokenreel.torch.loss import loss_by_source, loss_sum
from tokenreel.torch.preference_loss import (
    AnswerLogps,
    answer_logps,
    dpo_losses,
    kto_losses,
    mismatched_answers,
    padded_answers,
)
from tokenreel.torch.tensors import Tensors

__all__ = [
    "FIELDS",
    "AnswerLogps",
    "FeedDataset",
    "FeedLoader",
    "FeedRows",
    "GetBatch",
    "Tensors",
    "answer_logps",
    "block_mask",
    "cu_seqlens",
    "dpo_losses",
    "evaluate",
    "kto_losses",
    "loss_by_source",
    "loss_sum",
    "mismatched_answers",
    "padded_answers",
    "sdpa_mask",
]
