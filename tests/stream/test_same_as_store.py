"""Streamed documents give the rows that a store of the same documents gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import scratch
from tests.stream.making import batches_of, config_of, texts_of, write_texts

from tokenreel import Feed, Recipe, Source, StoreWriter

FIELDS = ("input_ids", "labels", "segment_ids", "position_ids")


def streamed_rows(config: dict[str, Any], **options: Any) -> dict[str, np.ndarray]:
    """Return all rows of a finite stream, one after the other."""
    batches = list(batches_of(config, **options))
    flat = {
        name: np.concatenate(
            [getattr(batch, name).reshape(-1, batch.labels.shape[-1]) for batch in batches]
        )
        for name in FIELDS
    }
    filled = np.asarray((flat["segment_ids"] > 0).any(axis=1))
    assert filled[: filled.sum()].all()  # rows of padding stand at the end alone
    return {name: rows[filled] for name, rows in flat.items()}


def stored_rows(
    texts: list[str], store: Path, *, seq_len: int, **how: Any
) -> dict[str, np.ndarray]:
    with StoreWriter(store, vocab_size=259) as writer:
        for text in texts:
            writer.add([*text.encode(), 256])
    source = Source(name="a", path=store, shuffle=False, **how)
    feed = Feed(Recipe(seq_len=seq_len, global_batch_size=1, sources=[source], pad_id=260))
    rows = [feed.batch(step) for step in range(feed.plans[0].num_rows)]
    return {name: np.concatenate([getattr(row, name) for row in rows]) for name in FIELDS}


PACKINGS = {
    "sequential": {"rows": "document_windows"},
    "bin": {"rows": "packed", "packing": "first_fit", "truncation": "split"},
}


@pytest.mark.parametrize("mode", PACKINGS)
@settings(max_examples=15, deadline=None)
@given(count=st.integers(2, 60), seed=st.integers(0, 99), seq_len=st.integers(1, 70))
def test_rows_are_those_of_the_store(mode: str, count: int, seed: int, seq_len: int) -> None:
    with scratch() as folder:
        texts = texts_of(count, seed=seed)
        if mode == "bin":  # a store packs all at once, a stream what 128 rows of tokens hold
            seq_len = max(seq_len, sum(len(text.encode()) + 1 for text in texts) // 128 + 1)
        path = write_texts(folder / "a.jsonl", texts)
        config = config_of(
            path,
            packing_mode=mode,
            packing_buffer_docs=1000,
            shuffle=False,
            repeat=False,
            train_seq_len=seq_len,
            train_batch_size=16,
        )
        streamed = streamed_rows(config)
        stored = stored_rows(texts, folder / "s", seq_len=seq_len, **PACKINGS[mode])
        for name in FIELDS:
            assert np.array_equal(streamed[name], stored[name]), name
            assert streamed[name].dtype == np.int32


def test_the_chunks_a_window_is_cut_from_do_not_show(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", texts_of(80))
    config = config_of(path, shuffle=False, repeat=False, train_seq_len=17)
    whole = streamed_rows(config)
    for size in (1, 30, 200):
        chunked = streamed_rows(config, group_characters=size)
        assert all(np.array_equal(chunked[name], whole[name]) for name in FIELDS)


def test_borders_are_trained_where_that_is_asked_for(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", texts_of(40))
    config = config_of(path, shuffle=False, repeat=False)
    for mode in PACKINGS:
        masked = streamed_rows({**config, "data": {**config["data"], "packing_mode": mode}})
        trained = streamed_rows(
            {
                **config,
                "data": {**config["data"], "packing_mode": mode, "mask_boundary_loss": False},
            }
        )
        inputs, labels = trained["input_ids"], trained["labels"]
        borders = (masked["labels"] == -100) & (labels != -100)
        assert borders.any()
        inside = labels[:, :-1] != -100
        assert np.array_equal(labels[:, :-1][inside], inputs[:, 1:][inside])
        assert np.array_equal(trained["segment_ids"], masked["segment_ids"])
        padded = masked["segment_ids"] == 0
        assert (labels[padded] == -100).all()
        kept = masked["labels"] != -100
        assert np.array_equal(labels[kept], masked["labels"][kept])


def test_end_tokens_are_no_targets_where_that_is_asked_for(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", texts_of(40))
    config = config_of(path, shuffle=False, repeat=False, packing_mode="bin")
    all_rows = streamed_rows(config)["labels"]
    without = streamed_rows({**config, "data": {**config["data"], "train_on_eos": False}})["labels"]
    assert (all_rows == 256).any() and not (without == 256).any()
    expected = np.where(all_rows == 256, -100, all_rows)
    expected = expected[(expected != -100).any(axis=1)]  # a row without a target is no row
    assert np.array_equal(expected, without)
