"""Contract 002: windows drawn from the shards of a cache, or of a native store."""

from __future__ import annotations

import json
import resource
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from niels_gpt.cache import PretrainTokenStreamDataset, build_pretrain_cache
from tokenreel import StoreWriter, open_store
from tokenreel.errors import ConfigError, DamageError, FormatError


def write(folder: Path, *shards: list[int] | np.ndarray) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for number, ids in enumerate(shards):
        np.array(ids, "<u2").tofile(folder / f"shard_{number:05d}.bin")
    return str(folder)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    length=st.integers(1, 12),
    rows=st.integers(1, 9),
    seed=st.integers(0, 2**40),
)
def test_every_row_is_a_window_of_one_shard_and_y_is_x_shifted(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], length: int, rows: int, seed: int
) -> None:
    shards = [np.arange(size) + 100 * number for number, size in enumerate(sizes)]
    folder = write(tmp_path_factory.mktemp("shards"), *shards)
    if max(sizes) <= length:
        with pytest.raises(
            ConfigError, match=rf"no shard has a window of T \+ 1 = {length + 1} tokens"
        ):
            PretrainTokenStreamDataset(folder, T=length, device="cpu")
        return
    x, y = PretrainTokenStreamDataset(folder, T=length, device="cpu").get_batch(
        B=rows, generator=seeded(seed)
    )
    assert x.shape == y.shape == (rows, length) and x.dtype == y.dtype == torch.int64
    assert x.is_contiguous() and y.is_contiguous()
    assert torch.equal(y[:, :-1], x[:, 1:])
    for row in torch.cat((x[:, :1], y), dim=1).tolist():
        assert row == list(range(row[0], row[0] + length + 1))
        owner = row[0] // 100
        assert row[-1] - 100 * owner < sizes[owner]


def test_every_window_is_equally_likely_and_short_shards_are_never_chosen(tmp_path: Path) -> None:
    shards = [np.arange(4), 100 + np.arange(8), 200 + np.arange(5), 300 + np.arange(24)]
    dataset = PretrainTokenStreamDataset(write(tmp_path, *shards), T=4, device="cpu")
    x, _ = dataset.get_batch(B=50_000, generator=seeded(3))
    counts = Counter(x[:, 0].tolist())
    starts = [*range(100, 104), 200, *range(300, 320)]
    assert sorted(counts) == starts
    expected = 50_000 / len(starts)
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 60  # 24 degrees


def test_batches_come_from_the_generator_that_is_given_and_no_other(tmp_path: Path) -> None:
    dataset = PretrainTokenStreamDataset(write(tmp_path, np.arange(999)), T=8, device="cpu")
    before = torch.get_rng_state()
    generator = seeded(5)
    first, second = (dataset.get_batch(B=4, generator=generator)[0] for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)
    again = seeded(5)
    assert torch.equal(first, dataset.get_batch(B=4, generator=again)[0])
    assert torch.equal(second, dataset.get_batch(B=4, generator=again)[0])
    assert not torch.equal(first, second)


def test_a_batch_can_be_changed_without_changing_anything_else(tmp_path: Path) -> None:
    dataset = PretrainTokenStreamDataset(write(tmp_path, np.arange(50)), T=8, device="cpu")
    x, y = dataset.get_batch(B=2, generator=seeded())
    kept = y.clone()
    x.zero_()
    assert torch.equal(y, kept)
    assert torch.equal(dataset.get_batch(B=2, generator=seeded())[1], kept)


def test_shards_are_mapped_not_loaded(tmp_path: Path) -> None:
    folder = Path(write(tmp_path / "train", [1, 2, 3]))
    with (folder / "shard_00001.bin").open("wb") as file:
        file.truncate(2 * 1024**3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dataset = PretrainTokenStreamDataset(str(folder), T=256, device="cpu")
    assert dataset.get_batch(B=16, generator=seeded())[0].shape == (16, 256)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 * 1024  # KiB; the file has 2 GiB


class Letters:
    vocab_size = 300

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def special_token_ids(self) -> dict[str, int]:
        return {"sys": 256, "usr": 257, "asst": 258, "eot": 259}


def cache(out: Path) -> Path:
    build_pretrain_cache(
        (f"a text with the number {n}" for n in range(200)),
        str(out),
        tokenizer=Letters(),
        max_train_tokens=4000,
        max_val_tokens=400,
        shard_bytes=1024,
        seed=1,
        shuffle_buffer=None,
    )
    return out


def test_a_built_cache_is_sampled_within_its_vocabulary_and_opens_as_a_store(
    tmp_path: Path,
) -> None:
    out = cache(tmp_path / "web")
    for split in ("train", "val"):
        dataset = PretrainTokenStreamDataset(str(out / split), T=32, device="cpu")
        x, y = dataset.get_batch(B=64, generator=seeded())
        assert torch.equal(y[:, :-1], x[:, 1:])
        assert int(x.max()) < Letters.vocab_size and int(x.min()) >= 0
    store = open_store(out)
    assert (store.layout, store.dtype_source, store.vocab_size) == (
        "cache-pretrain",
        "meta.json",
        300,
    )
    assert (store["train"].num_tokens, store["val"].num_tokens) == (4000, 400)
    assert bytes(store["val"].read(24, 48).astype("u1")) == b"a text with the number 1"


def test_shards_of_a_native_store_are_shards_of_a_cache(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", vocab_size=1000, shard_bytes=200) as writer:
        for n in range(40):
            writer.add(np.arange(20) + 20 * n)
    folder = tmp_path / "store" / "train"
    assert len(list(folder.glob("*.bin"))) > 3 and len(list(folder.glob("*.docs"))) > 3
    dataset = PretrainTokenStreamDataset(str(folder), T=16, device="cpu")
    x, _ = dataset.get_batch(B=32, generator=seeded())
    assert torch.equal(x - x[:, :1], torch.arange(16).expand(32, 16))
    with StoreWriter(tmp_path / "store", vocab_size=1000, replace=True) as writer:
        writer.add(np.full(40, 7))
    dataset = PretrainTokenStreamDataset(str(tmp_path / "store/train.2"), T=16, device="cpu")
    assert set(dataset.get_batch(B=3, generator=seeded())[0].flatten().tolist()) == {7}


def test_a_store_of_uint32_is_refused_not_misread(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", vocab_size=70_000) as writer:
        writer.add(np.arange(500))
    with pytest.raises(FormatError, match=r"declared by manifest.*expected uint16, got uint32"):
        PretrainTokenStreamDataset(str(tmp_path / "store/train"), T=4, device="cpu")


def test_a_dtype_is_never_inferred_from_sizes(tmp_path: Path) -> None:
    folder = Path(write(tmp_path / "web" / "train", np.arange(64)))  # a multiple of 4 bytes
    dataset = PretrainTokenStreamDataset(str(folder), T=8, device="cpu")
    assert int(dataset.get_batch(B=50, generator=seeded())[0].max()) < 64
    (folder.parent / "meta.json").write_text("{}")
    dataset = PretrainTokenStreamDataset(str(folder), T=8, device="cpu")
    assert int(dataset.get_batch(B=50, generator=seeded())[0].max()) < 64
    (folder.parent / "meta.json").write_text(json.dumps({"token_dtype": "uint32-le"}))
    with pytest.raises(FormatError, match=r"declared by meta\.json.*expected uint16, got uint32"):
        PretrainTokenStreamDataset(str(folder), T=8, device="cpu")


@pytest.mark.parametrize(
    ("size", "said"), [(0, "the shard is empty"), (201, "in the middle of a token, at byte 201")]
)
@pytest.mark.parametrize("with_meta", [False, True])
def test_an_empty_or_odd_shard_is_an_error_that_names_it(
    tmp_path: Path, size: int, said: str, with_meta: bool
) -> None:
    out = cache(tmp_path / "web")
    if not with_meta:
        (out / "meta.json").unlink()
    (out / "train" / "shard_00001.bin").unlink()
    (out / "train" / "shard_00001.bin").write_bytes(bytes(size))
    with pytest.raises(DamageError, match=rf"shard_00001\.bin: .*{said}"):
        PretrainTokenStreamDataset(str(out / "train"), T=8, device="cpu")


def test_a_lost_shard_of_a_cache_is_noticed(tmp_path: Path) -> None:
    out = cache(tmp_path / "web")
    (out / "train" / "shard_00002.bin").unlink()
    with pytest.raises(DamageError, match=r"as many tokens as meta\.json declares"):
        PretrainTokenStreamDataset(str(out / "train"), T=8, device="cpu")


def test_folders_without_shards_and_senseless_sizes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "absent"):
        with pytest.raises(DamageError, match=rf"{folder.name}: there are no shards here"):
            PretrainTokenStreamDataset(str(folder), T=8, device="cpu")
    folder = Path(write(tmp_path / "train", np.arange(64)))
    with pytest.raises(ConfigError, match="T: a window of no tokens"):
        PretrainTokenStreamDataset(str(folder), T=0, device="cpu")
    dataset = PretrainTokenStreamDataset(str(folder), T=8, device="cpu")
    with pytest.raises(ConfigError, match="B: a batch of no rows"):
        dataset.get_batch(B=0, generator=seeded())
