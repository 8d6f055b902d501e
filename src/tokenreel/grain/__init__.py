"""tokenreel for Grain: a random-access source of whole batches.

    grain.MapDataset.source(FeedSource(recipe)).to_iter_dataset()

Item number n is step n, ready: no shuffle, no batch, no packing after it. Grain's own
iterators then carry the state. Worker processes get the recipe, not the tokens.

>>> import tempfile, tokenreel
>>> path = tempfile.mkdtemp() + "/s"
>>> with tokenreel.StoreWriter(path, vocab_size=100) as writer:
...     writer.add(range(100))
>>> recipe = tokenreel.Recipe(seq_len=8, global_batch_size=4, seed=7, steps=3,
...     sources=[tokenreel.Source(name="a", path=path)])
>>> source = FeedSource(recipe, rank=1, world_size=2)
>>> len(source), source[2]["input_ids"].shape
(3, (2, 8))
"""

from __future__ import annotations

from tokenreel.feed.fields import FIELDS
from tokenreel.grain.steps import FeedSource

__all__ = ["FIELDS", "FeedSource"]
