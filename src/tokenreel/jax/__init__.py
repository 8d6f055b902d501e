"""tokenreel for JAX: global arrays, sharded over all devices, made from each process's rows.

A batch is a dict of jax.Array of the whole global step, [B, T] or, with accumulation,
[A, B, T]; each process reads the rows that its devices hold and no others. Token ids are
int32 unless 64-bit types are switched on. `evaluate` and `loss_by_source` say whose loss
it is.

>>> import tempfile, tokenreel
>>> path = tempfile.mkdtemp() + "/s"
>>> with tokenreel.StoreWriter(path, vocab_size=100) as writer:
...     writer.add(range(100))
>>> recipe = tokenreel.Recipe(seq_len=8, global_batch_size=4, seed=7, steps=3,
...     sources=[tokenreel.Source(name="a", path=path)])
>>> loader = FeedLoader(recipe)
>>> [batch["input_ids"].shape for batch in loader]
[(4, 8), (4, 8), (4, 8)]
>>> loader.state_dict()["step"]
3
"""

from __future__ import annotations

from tokenreel.feed.fields import FIELDS
from tokenreel.jax.loader import FeedLoader
from tokenreel.jax.loss import evaluate, loss_by_source

__all__ = ["FIELDS", "FeedLoader", "evaluate", "loss_by_source"]
