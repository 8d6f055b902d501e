"""Contract 003, sentence by sentence, through its names, arguments and files alone."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from torch.utils.data import DataLoader

from tokenreel.cli.main import main
from tokenreel.dropin import (
    DataConfig,
    DatasetSource,
    DistributedSampler,
    MemoryMappedDataset,
    MixtureDataset,
    MixtureSampler,
    StatefulDataLoader,
    load_data_config,
    make_pipeline,
)
from tokenreel.dropin.mapped.prepare import prepare
from tokenreel.errors import TokenreelError

EOS = 0


def write(folder: Path, *sizes: int, dtype: Any = np.uint16, kind: str = "npy") -> Path:
    """Write shards whose tokens count on from one file to the next."""
    folder.mkdir(parents=True, exist_ok=True)
    first = 1
    for number, size in enumerate(sizes):
        tokens = np.arange(first, first + size).astype(dtype)
        path = folder / f"shard_{number:05d}.{kind}"
        np.save(path, tokens) if kind == "npy" else tokens.tofile(path)
        first += size
    return folder


def lists(sample: dict[str, torch.Tensor]) -> dict[str, list[int]]:
    return {name: tensor.tolist() for name, tensor in sample.items()}


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("kind", ["npy", "bin"])
def test_each_file_gives_its_size_by_seq_len_samples(
    tmp_path: Path, kind: str, dtype: type
) -> None:
    folder = write(tmp_path, 11, 5, 9, dtype=dtype, kind=kind)  # an odd number: as uint16, not 4·n
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the rule of sizes is said aloud
        dataset = MemoryMappedDataset(folder, 4, f"*.{kind}")
    assert len(dataset) == 2 + 1 + 2
    assert lists(dataset[1]) == {"input_ids": [5, 6, 7], "labels": [6, 7, 8]}
    assert dataset[2]["input_ids"][0] == 12  # 9, 10 and 11 are left at the end of their file
    assert {tensor.dtype for tensor in dataset[0].values()} == {torch.int64}


def test_a_bin_file_whose_size_is_a_multiple_of_four_is_uint32(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = MemoryMappedDataset(write(tmp_path, 8, kind="bin"), 4, "*.bin")
    assert len(dataset) == 1
    assert dataset[0]["input_ids"][0] == 1 + (2 << 16)


def test_npy_files_of_different_dtypes_are_read_each_by_its_header(tmp_path: Path) -> None:
    """`.npy`: "Dtype is read from the header"."""
    for name, dtype in {"a": np.uint16, "b": np.uint32, "c": np.uint16}.items():
        np.save(tmp_path / f"{name}.npy", np.array([7, 8, 9, 10], dtype))
    (tmp_path / "metadata.yaml").write_text("dtype: uint16\n")
    dataset = MemoryMappedDataset(tmp_path, 4)
    assert [lists(dataset[number])["input_ids"] for number in range(3)] == [[7, 8, 9]] * 3
    batch = dataset.batch(np.array([2, 0, 1, 1]))
    assert batch["labels"].tolist() == [[8, 9, 10]] * 4


def test_bin_files_are_read_each_by_its_own_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`.bin`: "uint32 if the file size is a multiple of 4, else uint16"."""
    np.array([7, 8, 9], np.uint32).tofile(tmp_path / "a.bin")  # 12 bytes
    np.array([7, 8, 9], np.uint16).tofile(tmp_path / "b.bin")  # 6 bytes
    dataset = MemoryMappedDataset(tmp_path, 3, "*.bin")
    assert [lists(dataset[number])["input_ids"] for number in range(2)] == [[7, 8]] * 2
    assert "some .bin files are uint32 (a.bin), others uint16 (b.bin)" in caplog.text
    assert len(MemoryMappedDataset(tmp_path, 3, "*.bin", dtype="uint16")) == 2 + 1
    (tmp_path / "metadata.yaml").write_text("dtype: uint16\n")
    assert len(MemoryMappedDataset(tmp_path, 3, "*.bin")) == 2 + 1
    with pytest.raises(TokenreelError, match=r"b\.bin: the file ends in the middle of a token"):
        MemoryMappedDataset(tmp_path, 3, "*.bin", dtype="uint32")


@pytest.mark.parametrize("kind", ["npy", "bin"])
def test_an_empty_or_short_shard_contributes_nothing(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """ "Each file contributes len(file) // seq_len samples"."""
    folder = write(tmp_path, 0, 3, 6, 0, kind=kind)
    dataset = MemoryMappedDataset(folder, 4, f"*.{kind}", dtype="uint16")
    assert len(dataset) == 1 and lists(dataset[0])["input_ids"] == [4, 5, 6]
    assert "there is no sample" not in caplog.text
    short = MemoryMappedDataset(folder, 9, f"*.{kind}", dtype="uint16")
    assert len(short) == 0 and short.state_dict() == {"epoch": 0, "total_samples": 0}
    assert f"{folder}: no file has 9 tokens, so there is no sample" in caplog.text


def test_only_the_files_of_the_folder_itself_are_globbed(tmp_path: Path) -> None:
    """ "Globs data_dir/<file_pattern> and sorts the result"."""
    write(tmp_path, 4)
    write(tmp_path / "train", 40)
    np.array([1, 2], np.uint16).tofile(tmp_path / "other.bin")
    assert len(MemoryMappedDataset(tmp_path, 4)) == 1


def test_no_folder_and_no_match_are_the_errors_that_the_original_raises(tmp_path: Path) -> None:
    """ "Globs data_dir/<file_pattern>": without a file there is nothing to train on."""
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError):
            MemoryMappedDataset(folder, 4)
    (tmp_path / "gone.npy").symlink_to(tmp_path / "never.npy")
    with pytest.raises(FileNotFoundError, match="the link leads nowhere"):
        MemoryMappedDataset(tmp_path, 4)


def test_one_token_more_gives_inputs_and_labels_of_seq_len_each(tmp_path: Path) -> None:
    dataset = MemoryMappedDataset(write(tmp_path, 30), seq_len=8 + 1)
    assert [tuple(tensor.shape) for tensor in dataset[2].values()] == [(8,), (8,)]


def test_packing_ignores_labels_across_documents_and_numbers_them(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([10, 20, 0, 30, 40, 0, 0, 50, 60, 0], np.uint16))
    dataset = MemoryMappedDataset(tmp_path, 5, pack_sequences=True, eos_token_id=EOS)
    assert lists(dataset[0]) == {
        "input_ids": [10, 20, 0, 30],
        "labels": [20, 0, -100, 40],
        "doc_ids": [0, 0, 0, 1],
    }
    assert lists(dataset[1]) == {
        "input_ids": [0, 0, 50, 60],
        "labels": [-100, -100, 60, 0],
        "doc_ids": [0, 1, 2, 2],
    }
    assert "doc_ids" not in MemoryMappedDataset(tmp_path, 5, "*.npy", False, EOS)[0]


def test_the_end_of_documents_is_the_one_that_the_tokenizer_declares(tmp_path: Path) -> None:
    """ "`tokenizer_path` — to look up the EOS token ID"."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a"))
    tokenizer.add_special_tokens(["<|endoftext|>", "</s>"])
    (tmp_path / "words").mkdir()
    tokenizer.save(str(tmp_path / "words" / "tokenizer.json"))
    (tmp_path / "words" / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    config = DataConfig(
        str(write(tmp_path, 30)), pack_sequences=True, tokenizer_path=str(tmp_path / "words")
    )
    dataset = make_pipeline(config, seq_len=4, batch_size=2).dataset
    assert isinstance(dataset, MemoryMappedDataset) and dataset.eos_token_id == 2


def test_packing_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenreelError, match="eos_token_id"):
        MemoryMappedDataset(write(tmp_path, 9), 4, pack_sequences=True)


def test_the_state_is_epoch_and_total_samples_and_restores_the_epoch(tmp_path: Path) -> None:
    dataset = MemoryMappedDataset(write(tmp_path, 12), 4)
    assert dataset.state_dict() == {"epoch": 0, "total_samples": 3}
    dataset.load_state_dict({"epoch": 5, "total_samples": 3})
    assert dataset.state_dict()["epoch"] == 5
    dataset.close()


def test_the_epoch_is_restored_also_from_a_state_of_more_samples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """ "`load_state_dict` restores the epoch"."""
    dataset = MemoryMappedDataset(write(tmp_path, 12), 4)
    dataset.load_state_dict({"epoch": 2, "total_samples": 7})
    assert dataset.state_dict() == {"epoch": 2, "total_samples": 3}
    assert "the state is of a dataset of 7 samples, here are 3" in caplog.text


@pytest.fixture
def dataset(tmp_path: Path) -> MemoryMappedDataset:
    """Twenty-six samples of three tokens."""
    return MemoryMappedDataset(write(tmp_path, 30, 48), 3)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_ranks_share_out_an_epoch(
    dataset: MemoryMappedDataset, world_size: int, drop_last: bool
) -> None:
    ranks = [
        list(DistributedSampler(dataset, world_size, rank, True, 7, drop_last))
        for rank in range(world_size)
    ]
    assert len({len(rank) for rank in ranks}) == 1
    assert len(ranks[0]) == len(DistributedSampler(dataset, world_size, 0, True, 7, drop_last))
    counts = Counter(sample for rank in ranks for sample in rank)
    assert set(counts) <= set(range(26))
    assert counts.total() == (
        26 // world_size * world_size if drop_last else -(-26 // world_size) * world_size
    )
    assert len(counts) == (counts.total() if drop_last else 26)


def test_an_epoch_has_an_order_of_its_own_and_a_skip_begins_within_it(
    dataset: MemoryMappedDataset,
) -> None:
    sampler = DistributedSampler(dataset, num_replicas=2, rank=1, seed=3)
    first = list(sampler)
    sampler.set_epoch(1)
    second = list(sampler)
    assert first != second and sorted(first) != list(range(13))
    sampler.set_epoch(0)
    sampler.set_skip(5)
    assert list(sampler) == first[5:]
    assert list(sampler) == first


def test_torchs_own_loader_takes_dataset_and_sampler(dataset: MemoryMappedDataset) -> None:
    sampler = DistributedSampler(dataset, 2, 0)
    batches = list(DataLoader(dataset, sampler=sampler, batch_size=4))
    assert [len(batch["labels"]) for batch in batches] == [4, 4, 4, 1]
    expected = [dataset[number] for number in sampler]
    joined = torch.cat([batch["input_ids"] for batch in batches])
    assert torch.equal(joined, torch.stack([sample["input_ids"] for sample in expected]))
    assert torch.equal(
        next(iter(StatefulDataLoader(dataset, 4, sampler)))["labels"], batches[0]["labels"]
    )


def test_a_mixture_says_which_dataset_a_sample_is_of(tmp_path: Path) -> None:
    parts = [
        MemoryMappedDataset(write(tmp_path / name, size), 3)
        for name, size in {"a": 30, "b": 60}.items()
    ]
    mixture = MixtureDataset(parts, ["a", "b"])
    assert len(mixture) == 30
    assert [mixture[number]["dataset_idx"] for number in (0, 9, 10, 29)] == [0, 0, 1, 1]
    assert torch.equal(mixture[12]["labels"], parts[1][2]["labels"])
    sampler = MixtureSampler(mixture.cumulative_sizes, [1.0, 1.0], 1, 0)
    batch = next(iter(StatefulDataLoader(mixture, 6, sampler)))
    assert sorted(batch) == ["dataset_idx", "input_ids", "labels"]
    assert len(batch["dataset_idx"]) == 6


@pytest.mark.parametrize(
    ("weights", "temperature", "shares"),
    [
        ([1.0, 3.0], 1.0, [0.25, 0.75]),
        ([1.0, 9.0], 2.0, [0.25, 0.75]),
        ([0.0, 2.0], 1.0, [0.0, 1.0]),
        ([0.0, 2.0], 5.0, [0.0, 1.0]),
        ([1.0, 3.0], 1e6, [0.5, 0.5]),
    ],
)
def test_weights_to_the_power_of_one_by_temperature_are_the_shares(
    weights: list[float], temperature: float, shares: list[float]
) -> None:
    sampler = MixtureSampler([0, 400, 800], weights, 1, 0, temperature=temperature)
    found = np.array(list(sampler)) < 400
    assert found.mean() == pytest.approx(shares[0], abs=0.01)
    assert found[:100].mean() == pytest.approx(shares[0], abs=0.05)


def test_new_weights_hold_from_the_next_sample_on() -> None:
    sampler = MixtureSampler([0, 400, 800], [1.0, 0.0], 1, 0)
    samples = iter(sampler)
    before = [next(samples) for _ in range(100)]
    sampler.update_weights([0.0, 1.0], temperature=1.0)
    after = list(samples)
    assert max(before) < 400 <= min(after)
    assert len(before) + len(after) == len(sampler) == 800


@pytest.mark.parametrize("mixed", [False, True])
def test_a_loader_resumes_twice_over_an_epochs_end_and_right_after_a_load(
    dataset: MemoryMappedDataset, mixed: bool
) -> None:
    def make() -> StatefulDataLoader:
        if not mixed:
            return StatefulDataLoader(dataset, 4, DistributedSampler(dataset, 1, 0, seed=5))
        both = MixtureDataset([dataset, dataset], ["a", "b"])
        sampler = MixtureSampler(both.cumulative_sizes, [1.0, 2.0], 1, 0, seed=5)
        return StatefulDataLoader(both, 4, sampler)

    straight = make()
    expected = [batch["labels"] for _ in range(2) for batch in straight]
    assert len(expected) == 2 * len(straight)
    seen: list[torch.Tensor] = []
    state: dict[str, Any] | None = None
    while len(seen) < len(expected):
        loader = make()
        if state is not None:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            twice = make()
            twice.load_state_dict(loader.state_dict())
            loader = twice
        for _, batch in zip(range(3), loader, strict=False):
            seen.append(batch["labels"])
        state = loader.state_dict()
        assert {"epoch", "batches_yielded", "sampler"} <= set(state)
    assert all(map(torch.equal, seen, expected))


def test_the_states_of_a_mixture_are_numbered(tmp_path: Path) -> None:
    """ "How multiple mmap datasets compose via `MixtureDataset`": its keys are dataset_0, …"""
    parts = [MemoryMappedDataset(write(tmp_path / name, 30), 3) for name in "ab"]
    mixture = MixtureDataset(parts, ["same", "other"])
    mixture.load_state_dict({"dataset_1": {"epoch": 3, "total_samples": 1}})
    assert [state["epoch"] for state in mixture.state_dict().values()] == [0, 3]
    assert list(mixture.state_dict()) == ["dataset_0", "dataset_1"]


def test_a_config_has_lists_and_takes_its_settings_by_position() -> None:
    """ "When data.dataset_path is set and data.datasets is empty"."""
    config = DataConfig("/tokens", "*.bin")
    assert config.datasets == [] and config.phases == []
    assert isinstance(config.datasets, list) and isinstance(config.phases, list)
    assert DatasetSource("/a", 0.7, "a") == DatasetSource(path="/a", weight=0.7, name="a")
    assert DataConfig(anneal_start_step=5).anneal_weights == {}


def test_the_validator_prints_flags_of_the_contract_and_the_rest_as_a_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "Prints the exact --data flags for scripts/train.py"."""
    write(tmp_path, 7, kind="bin")
    assert main(["prepare", str(tmp_path)]) == 0
    shown = capsys.readouterr().out.split("train with")[1].strip().splitlines()
    assert [line.strip() for line in shown] == [
        f"--data.dataset_path={tmp_path}",
        "'--data.file_pattern=*.bin'",
        "# where the trainer knows them: --data.dtype=uint16",
    ]


def test_the_validator_counts_what_the_dataset_reads(tmp_path: Path) -> None:
    """ "Validator that prints the right --data.* flags"."""
    np.array([7, 8, 9], np.uint32).tofile(tmp_path / "a.bin")
    np.array([7, 8, 9], np.uint16).tofile(tmp_path / "b.bin")
    (tmp_path / "c.bin").touch()
    facts = prepare(tmp_path)
    assert (facts["tokens"], facts["shards"], facts["dtype"]) == (6, 3, "uint32")
    assert len(MemoryMappedDataset(tmp_path, 3, "*.bin")) == 2
    assert not any("dtype" in flag for flag in facts["flags"])


def test_the_section_of_the_contract_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(
        '[data]\ndataset_path = "/path/to/tokens"\nfile_pattern = "*.npy" # or "*.bin"\n'
        'pack_sequences = false # see below\ntokenizer_path = ""\n'
    )
    config = load_data_config(tmp_path / "train.toml")
    assert (config.dataset_path, config.file_pattern) == ("/path/to/tokens", "*.npy")
    assert (config.pack_sequences, config.tokenizer_path) == (False, "")
