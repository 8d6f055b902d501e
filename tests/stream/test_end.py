"""The end of the stream, of an epoch, and of patience: by a stated policy, never in silence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.stream.making import (
    batches_of,
    config_of,
    documents_in,
    take,
    texts_of,
    write_texts,
)

from tokenreel.errors import InputError
from tokenreel.stream.stream_state import stats_of
from tokenreel.testing import equal
from tokenreel.text.sources import InMemory


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_pad_loses_nothing_and_drop_says_what_it_loses(tmp_path: Path, mode: str) -> None:
    path = write_texts(tmp_path / "a.jsonl", texts_of(37))
    told = {}
    for end in ("pad", "drop"):
        stream = batches_of(config_of(path, packing_mode=mode, repeat=False, end=end))
        rows = np.concatenate([batch.segment_ids.reshape(-1, 24) for batch in stream])
        told[end] = stats_of(stream.get_state(), seq_len=24)
        assert len(rows) % 4 == 0 and len(rows) == told[end]["rows"]
        if end == "drop":
            assert (rows > 0).any(axis=1).all()
    assert told["pad"]["rows"] == told["drop"]["rows"] + 4
    lost = told["drop"]["dropped"] - told["pad"]["dropped"]
    assert lost > 0 and told["pad"]["placed"] == told["drop"]["placed"] + lost


def test_bin_mode_yields_with_fewer_documents_than_its_buffer(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["one document", "and another"])
    config = config_of(path, packing_mode="bin", packing_buffer_docs=1000)
    assert len(take(batches_of(config), 5)) == 5
    config["data"]["repeat"] = False
    [batch] = batches_of(config)
    assert (batch.segment_ids[..., 0] > 0).sum() == 2 - 1  # 13 + 12 tokens share a row of 25


def test_fewer_rows_than_a_batch_are_padded_or_an_error(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["one document"])
    assert len(list(batches_of(config_of(path, repeat=False)))) == 1
    stream = batches_of(config_of(path, packing_mode="bin", repeat=False, end="drop"))
    for _ in range(2):
        with pytest.raises(InputError, match=r'got 1 rows\); .* set data.end = "pad"'):
            next(stream)


def test_an_epoch_resumed_behind_its_only_text_is_not_taken_for_one_without(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["one text " * 40, "", "", ""])
    config = config_of(path, shuffle=False, repeat=False, tokenizer_add_eos=False)
    whole = list(batches_of(config, group_characters=1))
    stream = batches_of(config, group_characters=1)
    next(stream)
    state = stream.get_state()
    assert state["lanes"]["0"]["place"]["number"] == 1
    resumed = batches_of(config, group_characters=1)
    resumed.set_state(state)
    rest = list(resumed)
    assert len(rest) == len(whole) - 1 > 0
    assert all(equal(one, other) for one, other in zip(rest, whole[1:], strict=True))


def test_an_ended_stream_stays_ended(tmp_path: Path) -> None:
    stream = batches_of(config_of(write_texts(tmp_path / "a.jsonl", texts_of(9)), repeat=False))
    batches = list(stream)
    assert batches and list(stream) == []
    resumed = batches_of(config_of(tmp_path / "a.jsonl", repeat=False))
    resumed.set_state(stream.get_state())
    assert list(resumed) == []


def test_windows_run_on_into_the_next_epoch(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["abcdefg"])
    config = config_of(path, train_seq_len=5, train_batch_size=4, train_grad_accum=1)
    batch = next(batches_of(config))
    tokens = [*b"abcdefg", 256] * 4
    assert batch.input_ids.reshape(-1).tolist() == tokens[:20]


def test_epochs_come_in_different_orders_and_each_is_whole(tmp_path: Path) -> None:
    letters = "abcdefghijklmnop"
    path = write_texts(tmp_path / "a.jsonl", list(letters))
    config = config_of(path, train_seq_len=32, train_batch_size=3, train_grad_accum=1)
    rows = next(batches_of(config)).input_ids[0]
    epochs = ["".join(chr(token) for token in row if token != 256) for row in rows]
    assert [sorted(epoch) for epoch in epochs] == [list(letters)] * 3
    assert len(set(epochs)) == 3


def test_an_empty_source_is_an_error(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", [])
    for repeat in (True, False):
        with pytest.raises(
            InputError, match=r"a.jsonl: the source gives no document .*lane 1 of 1"
        ):
            next(batches_of(config_of(path, repeat=repeat)))


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_a_source_with_nothing_to_train_on_is_an_error(tmp_path: Path, mode: str) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["x"] * 40)
    for repeat, message in (
        (True, "nothing of the stream can be trained on"),
        (False, "ends before its first batch"),
    ):
        config = config_of(path, packing_mode=mode, repeat=repeat, tokenizer_add_eos=False)
        with pytest.raises(InputError, match=message):
            next(batches_of(config))


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_a_source_without_a_token_is_an_error_and_no_endless_search(
    tmp_path: Path, mode: str
) -> None:
    path = write_texts(tmp_path / "a.jsonl", [""] * 40)
    for settings in ({"repeat": True}, {"repeat": False}, {"local_files": None, "local_text": ""}):
        config = config_of(path, packing_mode=mode, tokenizer_add_eos=False, **settings)
        with pytest.raises(InputError, match=r"can be trained on .*an epoch without a token"):
            next(batches_of(config))


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        (["so it goes"], {}),
        (["so it goes"], {"packing_max_docs_per_bin": 200}),
        ([f"say {number:02d}" for number in range(130)], {"packing_buffer_docs": 128}),
        (["longer than a row " * 7], {"train_seq_len": 100}),
        (["longer than a block " * 200], {"train_seq_len": 24}),
        ([f"{number} of a tenth " * 20 for number in range(9)], {"train_seq_len": 24}),
    ],
)
def test_bins_run_on_into_the_next_epoch(texts: list[str], settings: dict[str, Any]) -> None:
    """Contract 004: "bin (First-Fit-Decreasing; better utilization)", also of a small corpus."""
    config = config_of(
        Path("none"), packing_mode="bin", **{"train_seq_len": 1024, "shuffle": False, **settings}
    )
    stream = batches_of(config, source=InMemory(texts))
    take(stream, 24)
    assert stats_of(stream.get_state(), seq_len=config["train"]["seq_len"])["utilisation"] > 0.95


def test_blocks_over_the_end_of_an_epoch_show_every_document_as_often() -> None:
    texts = [f"{number:04d}" for number in range(50)]
    config = config_of(
        Path("none"), packing_mode="bin", packing_buffer_docs=64, train_seq_len=14, shuffle=True
    )
    stream = batches_of(config, source=InMemory(texts))
    shown: Counter[str] = Counter()
    while not shown or max(shown.values()) < 30:
        shown.update(documents_in([next(stream)]))
    # A block is 128 documents here, in which all come twice or three times.
    assert set(shown) == set(texts) and min(shown.values()) >= 30 - 3
