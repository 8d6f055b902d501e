"""Contract 003's dataset: samples, documents, dtypes, one by one and whole batches."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dropin.making import put_files
from tests.feed.making import scratch

from tokenreel import StoreWriter, native
from tokenreel.dropin import MemoryMappedDataset
from tokenreel.errors import ConfigError, LayoutError


def as_lists(sample: dict[str, torch.Tensor]) -> dict[str, list]:
    assert all(tensor.dtype == torch.int64 for tensor in sample.values())
    return {name: tensor.tolist() for name, tensor in sample.items()}


def packed_slowly(tokens: list[int], eos: int) -> dict[str, list[int]]:
    """Say what a packed sample is, token by token."""
    document, documents = 0, []
    for token in tokens:
        documents.append(document)
        document += token == eos
    labels = [
        token if documents[place + 1] == documents[place] else -100
        for place, token in enumerate(tokens[1:])
    ]
    return {"input_ids": tokens[:-1], "labels": labels, "doc_ids": documents[:-1]}


def test_the_example_of_the_contract(tmp_path):
    put_files(tmp_path, {"a.npy": [10, 20, 0, 30, 40]})
    plain = MemoryMappedDataset(tmp_path, 5)
    assert as_lists(plain[0]) == {"input_ids": [10, 20, 0, 30], "labels": [20, 0, 30, 40]}
    packed = MemoryMappedDataset(tmp_path, 5, pack_sequences=True, eos_token_id=0)
    assert as_lists(packed[0]) == {
        "input_ids": [10, 20, 0, 30],
        "labels": [20, 0, -100, 40],
        "doc_ids": [0, 0, 0, 1],
    }


def test_files_are_sorted_by_name_and_a_rest_is_unused(tmp_path):
    files = {"s_10.npy": range(100, 107), "s_2.npy": range(200, 209), "s_1.npy": range(2)}
    dataset = MemoryMappedDataset(put_files(tmp_path, files), 3)
    assert len(dataset) == 0 + 2 + 3
    inputs = [dataset[number]["input_ids"].tolist() for number in range(5)]
    assert inputs == [[100, 101], [103, 104], [200, 201], [203, 204], [206, 207]]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    seq_len=st.integers(2, 12),
    pack=st.booleans(),
    dtypes=st.lists(st.sampled_from(["<u2", "<u4", "<i4", "u1"]), min_size=4, max_size=4),
    kernel=st.booleans(),
    seed=st.integers(0, 9),
)
def test_samples_and_batches_are_slices_of_the_files(sizes, seq_len, pack, dtypes, kernel, seed):
    chance = np.random.default_rng(seed)
    files = {f"f_{n}.npy": chance.integers(0, 4, size).tolist() for n, size in enumerate(sizes)}
    expected = [
        packed_slowly(tokens[at : at + seq_len], 0)
        for tokens in files.values()
        for at in range(0, len(tokens) - seq_len + 1, seq_len)
    ]
    if not pack:
        expected = [
            {"input_ids": row["input_ids"], "labels": [*row["input_ids"][1:], None]}
            for row in expected
        ]
    with scratch() as place, pytest.MonkeyPatch.context() as patch:
        if not kernel:
            patch.setattr(native, "extension", lambda: None)
        for (name, tokens), dtype in zip(files.items(), dtypes, strict=False):
            put_files(place, {name: tokens}, dtype=dtype)
        dataset = MemoryMappedDataset(place, seq_len, "*.npy", pack, 0)
        assert len(dataset) == len(expected)
        if not expected:
            with pytest.raises(IndexError, match="no such row among 0"):
                dataset.batch(np.array([0]))
            return
        numbers = chance.integers(0, len(dataset), 7)
        batch = dataset.batch(numbers)
        for row, number in enumerate(numbers.tolist()):
            sample = as_lists(dataset[number])
            assert {name: tensor[row].tolist() for name, tensor in batch.items()} == sample
            if not pack:
                expected[number]["labels"][-1] = sample["labels"][-1]
            assert sample == expected[number]
        several = dataset.__getitems__(numbers.tolist())
        assert [as_lists(item) for item in several] == [as_lists(dataset[n]) for n in numbers]


def test_batches_are_contiguous_and_those_kept_stay_as_they_are(tmp_path):
    put_files(tmp_path, {"a.npy": range(1000)})
    dataset = MemoryMappedDataset(tmp_path, 9)
    kept = [dataset.batch(np.array([n, n + 1])) for n in range(60)]
    for number, batch in enumerate(kept):
        assert batch["labels"].is_contiguous()
        assert batch["input_ids"][1].tolist() == list(range(9 * number + 9, 9 * number + 17))


@pytest.mark.parametrize("number", [-1, 3, 10**12])
def test_an_index_outside_is_an_index_error(tmp_path, number):
    put_files(tmp_path, {"a.npy": range(9)})
    dataset = MemoryMappedDataset(tmp_path, 3)
    with pytest.raises(IndexError, match=f"no sample {number:,} of 3"):
        dataset[number]
    with pytest.raises(IndexError, match="no such row among 3"):
        dataset.batch(np.array([0, number]))
    assert dataset[np.int64(2)]["input_ids"].tolist() == [6, 7]


def test_a_declared_dtype_wins_over_the_size_rule(tmp_path):
    put_files(tmp_path, {"a.bin": range(8)}, dtype="<u2")  # 16 bytes: uint32 by the size rule
    declared = MemoryMappedDataset(tmp_path, 4, "*.bin", dtype="uint16")
    assert declared[1]["input_ids"].tolist() == [4, 5, 6]
    (tmp_path / "metadata.yaml").write_text("dtype: uint16\n")
    assert MemoryMappedDataset(tmp_path, 4, "*.bin")[1]["input_ids"].tolist() == [4, 5, 6]


def test_the_size_rule_is_the_last_resort_and_is_said_aloud(tmp_path, caplog):
    put_files(tmp_path / "wide", {"a.bin": range(8)}, dtype="<u4")
    put_files(tmp_path / "narrow", {"a.bin": range(7)}, dtype="<u2")
    for folder, dtype in (("wide", "uint32"), ("narrow", "uint16")):
        caplog.clear()
        dataset = MemoryMappedDataset(tmp_path / folder, 3, "*.bin")
        assert dataset[1]["input_ids"].tolist() == [3, 4]
        assert f"it is taken to be {dtype}" in caplog.text


@pytest.mark.parametrize("declaration", ["meta.json", "manifest.json"])
def test_what_is_declared_above_a_split_counts_for_it(tmp_path, caplog, declaration):
    if declaration == "meta.json":
        put_files(tmp_path / "s" / "train", {"a.bin": range(8)}, dtype="<u2")
        (tmp_path / "s" / "meta.json").write_text(json.dumps({"dtype": "uint16"}))
    else:
        with StoreWriter(tmp_path / "s", vocab_size=9) as writer:
            writer.add(range(8))
    for folder in {"meta.json": ["s/train"], "manifest.json": ["s/train", "s"]}[declaration]:
        dataset = MemoryMappedDataset(tmp_path / folder, 4, "*.bin")
        assert [dataset[n]["input_ids"].tolist() for n in range(2)] == [[0, 1, 2], [4, 5, 6]]
    assert "taken to be" not in caplog.text


def test_a_pattern_that_fits_no_shard_of_a_store_is_refused(tmp_path):
    with StoreWriter(tmp_path / "s", vocab_size=9) as writer:
        writer.add(range(8))
    with pytest.raises(ConfigError, match=r"file_pattern matches no shard of this store"):
        MemoryMappedDataset(tmp_path / "s" / "train", 4)
    with pytest.raises(ConfigError, match=r"no \*\.npy or \*\.bin file matches file_pattern"):
        MemoryMappedDataset(put_files(tmp_path / "t", {"a.bin": [1]}), 4)
    with pytest.raises(LayoutError, match="there is no such folder"):
        MemoryMappedDataset(tmp_path / "nowhere", 4)


@pytest.mark.parametrize("eos", [None, -1])
def test_packing_needs_an_end(tmp_path, eos):
    put_files(tmp_path, {"a.npy": range(8)})
    with pytest.raises(ConfigError, match="pack_sequences needs the id that ends a document"):
        MemoryMappedDataset(tmp_path, 4, pack_sequences=True, eos_token_id=eos)


@pytest.mark.parametrize("seq_len", [-1, 0, 1])
def test_a_sample_needs_an_input_and_a_label(tmp_path, seq_len):
    put_files(tmp_path, {"a.npy": range(8)})
    with pytest.raises(ConfigError, match="a slice needs an input and a label"):
        MemoryMappedDataset(tmp_path, seq_len)


def test_the_state_is_epoch_and_total_samples(tmp_path):
    put_files(tmp_path, {"a.npy": range(8)})
    dataset = MemoryMappedDataset(tmp_path, 4)
    assert dataset.state_dict() == {"epoch": 0, "total_samples": 2}
    dataset.load_state_dict({"epoch": 3})
    assert dataset.state_dict() == {"epoch": 3, "total_samples": 2}
    with pytest.raises(ConfigError, match="bad epoch in the state of the dataset"):
        dataset.load_state_dict({"epoch": -1})


def test_what_is_closed_reads_no_more_and_what_was_read_stays(tmp_path):
    put_files(tmp_path, {"a.npy": range(8)})
    dataset = MemoryMappedDataset(tmp_path, 4)
    sample = dataset[0]
    dataset.close()
    dataset.close()
    with pytest.raises(ConfigError, match="the dataset is closed"):
        dataset[0]
    with pytest.raises(ConfigError, match="the dataset is closed"):
        dataset.batch(np.array([0]))
    assert sample["labels"].tolist() == [1, 2, 3] and len(dataset) == 2
    assert dataset.fingerprint == MemoryMappedDataset(tmp_path, 4).fingerprint


def test_a_pickle_of_it_holds_arguments_and_no_tokens(tmp_path):
    put_files(tmp_path, {"a.bin": range(60_000)})
    dataset = MemoryMappedDataset(tmp_path, 4, "*.bin", True, 7, dtype="uint16")
    dataset.load_state_dict({"epoch": 2})
    _ = dataset[0]
    data = pickle.dumps(dataset)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert again.state_dict() == dataset.state_dict()
    assert as_lists(again[1]) == as_lists(dataset[1])


def test_workers_of_a_plain_torch_loader_give_the_same_batches(tmp_path):
    put_files(tmp_path, {"a.npy": range(400)})
    dataset = MemoryMappedDataset(tmp_path, 5)
    loaders = [
        torch.utils.data.DataLoader(dataset, batch_size=8),
        torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=1),
    ]
    here, there = ([batch["labels"].tolist() for batch in loader] for loader in loaders)
    assert here == there and len(here) == 10


def test_the_log_says_what_was_opened(tmp_path, caplog):
    caplog.set_level(logging.INFO, "tokenreel.dropin")
    MemoryMappedDataset(put_files(tmp_path, {"a.npy": range(8), "b.npy": range(5)}), 4)
    assert caplog.messages == ["MemoryMappedDataset: 2 files, 13 tokens, 3 samples (seq_len=4)"]


def test_prepared_flags_open_what_was_prepared(tmp_path: Path) -> None:
    from tokenreel.config.load import load
    from tokenreel.dropin import DataConfig
    from tokenreel.dropin.mapped.prepare import prepare

    put_files(tmp_path / "s" / "train", {"a.bin": range(8)})
    put_files(tmp_path / "s" / "val", {"a.bin": range(4)})
    for folder, declared in ((tmp_path / "s", "uint16"), (tmp_path / "s" / "train", "uint16")):
        flags = [flag.strip("'") for flag in prepare(folder, dtype=declared)["flags"]]
        assert all(flag.startswith("--data.") for flag in flags)
        overrides = [flag.removeprefix("--data.") for flag in flags]
        config = load(DataConfig, {}, overrides=overrides)
        dataset = MemoryMappedDataset(
            config.dataset_path, 4, config.file_pattern, dtype=config.dtype
        )
        assert dataset[1]["input_ids"].tolist() == [4, 5, 6]
