"""What loaders tell of themselves: their part, their device, and the feed behind them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import torch
from tests.adapters.making import mixed_recipe, write_stores

import tokenreel.jax
from tokenreel.feed.feed import Feed
from tokenreel.stream import Batch, StreamPipeline
from tokenreel.torch import FeedDataset, FeedLoader, FeedRows


def test_every_loader_tells_its_part_and_then_the_feed(tmp_path: Path) -> None:
    write_stores(tmp_path)
    feed = Feed(mixed_recipe(tmp_path))
    behind = "\n  " + repr(feed).replace("\n", "\n  ")
    loaders = {
        "FeedLoader(device cpu, ranks of torch.distributed, prefetch 2)": FeedLoader(feed),
        "FeedLoader(device meta, rank 1 of 2, prefetch 0, epochs of 5 steps)": FeedLoader(
            feed, rank=1, world_size=2, prefetch=0, epoch_steps=5, device=torch.device("meta")
        ),
        "FeedDataset(rank 0 of 2, prefetch 0)": FeedDataset(feed, rank=0, world_size=2),
        "FeedLoader(rank 0 of 1, 1 device, prefetch 3)": tokenreel.jax.FeedLoader(
            feed, rank=0, world_size=1, prefetch=3
        ),
    }
    for told, loader in loaders.items():
        assert repr(loader) == told + behind


def test_rows_tell_how_many_they_are(tmp_path: Path) -> None:
    write_stores(tmp_path)
    recipe = mixed_recipe(tmp_path)
    size = recipe.global_batch_size
    rows = FeedRows(recipe, epoch_steps=3)
    assert repr(rows).startswith(f"FeedRows({3 * size} rows, epochs of 3 steps, epoch 0)\n  Feed(")
    endless = FeedRows(recipe)
    assert repr(endless).startswith("FeedRows(rows without end)\n  Feed(")
    assert repr(pickle.loads(pickle.dumps(endless))) == repr(endless)


def test_a_pipeline_tells_its_source_shape_and_vocabulary() -> None:
    config = {
        "data": {
            "backend": "local_text",
            "local_text": "so it goes. " * 99,
            "packing_mode": "bin",
            "num_lanes": 2,
            "tokenizer": {"kind": "byte", "add_eos": True},
        },
        "train": {"seq_len": 16, "batch_size": 4, "grad_accum": 2},
    }
    with StreamPipeline(config, rank=1, world_size=2) as pipeline:
        assert repr(pipeline) == (
            "StreamPipeline(local_text, split 'train', rank 1 of 2, 2 x 4 rows of 16 tokens, "
            f"packing 'bin', vocabulary of {pipeline.vocab_size:,}, eos {pipeline.eos_id}, "
            f"pad {pipeline.pad_id})"
        )


def test_a_batch_of_a_stream_counts_its_slots() -> None:
    segments = np.array([[[1, 1, 2, 0], [1, 1, 1, 1]]])
    labels = np.where(segments == 2, 7, -100)
    batch = Batch(
        step=5, input_ids=segments, labels=labels, segment_ids=segments, position_ids=segments
    )
    assert repr(batch) == "Batch(step 5, 1 x 2 rows of 4 tokens, 1 trained, 6 masked, 1 padding)"
