"""Contract 002: equal input and seed give equal bytes, and torch is the only chance there is."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from niels_gpt.cache import build_pretrain_cache, build_sft_cache, read_meta
from niels_gpt.cache.build_cache import Message
from tokenreel import open_store
from tokenreel.errors import ConfigError

EOT = 4
TEXTS = [f"document {n} " * (n % 5 + 1) + "\n" for n in range(200)]
CHATS: list[list[Message]] = [
    [{"role": "user", "content": f"ask {n}"}, {"role": "assistant", "content": f"say {n}"}]
    for n in range(50)
]


class Letters:
    """One id per byte; the control ids are bytes that no text here has."""

    vocab_size = 1000

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def special_token_ids(self) -> dict[str, int]:
        return {"sys": 1, "usr": 2, "asst": 3, "eot": EOT}


def pretrain(out: Path, texts: Any = TEXTS, **changed: Any) -> Path:
    settings: dict[str, Any] = {
        "tokenizer": Letters(),
        "max_train_tokens": 3000,
        "max_val_tokens": 300,
        "shard_bytes": 2000,
        "seed": 7,
        "shuffle_buffer": 32,
    }
    build_pretrain_cache(texts, str(out), **{**settings, **changed})
    return out


def sft(out: Path, chats: Any = CHATS, *, seed: int = 7, val_frac: float = 0.2) -> Path:
    build_sft_cache(chats, str(out), tokenizer=Letters(), val_frac=val_frac, seed=seed)
    return out


def sums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def stream(out: Path, split: str) -> list[int]:
    shards = sorted((out / split).glob("shard_*.bin"))
    return [int(number) for shard in shards for number in np.fromfile(shard, "<u2")]


def documents(out: Path, split: str) -> list[str]:
    """Return the texts of a split; those of TEXTS end with their newline."""
    return bytes(stream(out, split)).decode().splitlines(keepends=True)


@pytest.mark.parametrize("shuffle_buffer", [None, 1, 32, 10_000])
def test_equal_texts_and_seed_give_equal_files_from_lists_and_generators(
    tmp_path: Path, shuffle_buffer: int | None
) -> None:
    first = pretrain(tmp_path / "a", shuffle_buffer=shuffle_buffer)
    second = pretrain(tmp_path / "b", (text for text in TEXTS), shuffle_buffer=shuffle_buffer)
    assert sums(first) == sums(second)
    assert {name.split("/")[0] for name in sums(first)} == {"train", "val", "meta.json"}


def test_equal_chats_and_seed_give_equal_files(tmp_path: Path) -> None:
    first, second = sft(tmp_path / "a"), sft(tmp_path / "b", iter(CHATS))
    assert sums(first) == sums(second)
    names = [f"{split}_{what}" for split in ("train", "val") for what in ("idx.npy", "tokens.bin")]
    assert sorted(sums(first)) == ["meta.json", *names]


def test_another_seed_is_another_order_and_another_split(tmp_path: Path) -> None:
    assert sums(pretrain(tmp_path / "a")) != sums(pretrain(tmp_path / "b", seed=8))
    assert stream(tmp_path / "a", "val") != stream(tmp_path / "b", "val")
    one, other = sft(tmp_path / "c"), sft(tmp_path / "d", seed=8)
    assert (one / "val_tokens.bin").read_bytes() != (other / "val_tokens.bin").read_bytes()


def test_no_generator_but_torchs_own_new_ones_is_touched(tmp_path: Path) -> None:
    before = random.getstate(), repr(np.random.get_state()), torch.get_rng_state()
    first = sums(pretrain(tmp_path / "a")) | sums(sft(tmp_path / "b"))
    after = random.getstate(), repr(np.random.get_state()), torch.get_rng_state()
    assert before[:2] == after[:2] and torch.equal(before[2], after[2])
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert sums(pretrain(tmp_path / "c")) | sums(sft(tmp_path / "d")) == first


def test_the_validation_examples_are_those_torch_chooses(tmp_path: Path) -> None:
    out = sft(tmp_path / "a")
    order = torch.randperm(50, generator=torch.Generator().manual_seed(7))
    chosen = sorted(order[:10].tolist())
    offsets = np.load(out / "val_idx.npy")
    tokens = np.fromfile(out / "val_tokens.bin", "<u2")
    answers = ["".join(chr(n) for n in ids if n > EOT) for ids in np.split(tokens, offsets[1:])]
    assert [int(answer.rsplit("say ")[1]) for answer in answers] == chosen
    assert (len(np.load(out / "train_idx.npy")), len(offsets)) == (40, 10)


def test_a_shuffle_moves_documents_inside_their_block_and_loses_none(tmp_path: Path) -> None:
    plain = pretrain(tmp_path / "a", max_val_tokens=0, max_train_tokens=10**6, shuffle_buffer=None)
    mixed = pretrain(tmp_path / "b", max_val_tokens=0, max_train_tokens=10**6, shuffle_buffer=32)
    before, after = documents(plain, "train"), documents(mixed, "train")
    assert before == TEXTS
    for start in range(0, len(before), 32):
        block, moved = before[start : start + 32], after[start : start + 32]
        assert sorted(moved) == sorted(block) and moved != block


def test_no_validation_is_an_empty_folder(tmp_path: Path) -> None:
    """Contract 002: "writes: out_dir/train/shard_*.bin, out_dir/val/shard_*.bin"."""
    out = pretrain(tmp_path / "a", max_val_tokens=0)
    assert (out / "val").is_dir() and not list((out / "val").iterdir())
    assert read_meta(str(out / "meta.json"))["val_tokens"] == 0
    assert open_store(out)["train"].num_tokens == 3000


def test_four_words_in_memory_build_a_cache_and_an_empty_training_split_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Contract 002: "determinism (small synthetic input): given the same small in-memory iterable
    + same seed, cache files are byte-identical".
    """
    words = ["alpha", "beta", "gamma", "delta"]
    sizes = {"max_train_tokens": 50, "max_val_tokens": 30, "shard_bytes": 1024, "shuffle_buffer": 3}
    first, second = (pretrain(tmp_path / name, words, **sizes) for name in "ab")
    assert sums(first) == sums(second)
    assert sorted(stream(first, "val")) == sorted(Letters().encode("".join(words)))
    assert (first / "train").is_dir() and not list((first / "train").iterdir())
    assert open_store(first)["val"].num_tokens == 19
    assert "a: train/ is empty: all 19 tokens are validation, which may have 30" in caplog.text


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=40).filter(any),
    val=st.integers(0, 60),
    train=st.integers(0, 200),
    capacity=st.integers(5, 80),
)
def test_the_budgets_are_ceilings_and_what_validation_cuts_off_goes_on_in_training(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    val: int,
    train: int,
    capacity: int,
) -> None:
    """Contract 002: "max_train_tokens: int, max_val_tokens: int"; the original's split rule is
    "val tokens first, remaining to train".
    """
    texts = [chr(97 + number % 26) * length for number, length in enumerate(lengths)]
    out = tmp_path_factory.mktemp("cache") / "c"
    budgets = {"max_val_tokens": val, "max_train_tokens": max(train, 1 - min(val, 1))}
    pretrain(out, texts, **budgets, shuffle_buffer=None, shard_bytes=2 * capacity)
    wanted = _deal([Letters().encode(text) for text in texts], *budgets.values())
    assert {split: stream(out, split) for split in wanted} == wanted
    meta = read_meta(str(out / "meta.json"))
    assert {f"{split}_tokens": len(ids) for split, ids in wanted.items()}.items() <= meta.items()
    sizes = [path.stat().st_size for path in out.rglob("shard_*.bin")]
    assert all(0 < size <= 2 * capacity for size in sizes)


def _deal(documents: list[list[int]], val: int, train: int) -> dict[str, list[int]]:
    """Deal documents one after the other, as the original does: each to val, the rest to train."""
    splits: dict[str, list[int]] = {"train": [], "val": []}
    for ids in documents:
        room = val - len(splits["val"])
        splits["val"] += ids[:room]
        splits["train"] += ids[room:][: train - len(splits["train"])]
    return splits


@pytest.mark.parametrize("budgets", [(0, 0), (-1, 5), (5, -1)])
def test_budgets_that_make_no_sense_are_refused(tmp_path: Path, budgets: tuple[int, int]) -> None:
    val, train = budgets
    with pytest.raises(ConfigError, match=r"max_val_tokens, max_train_tokens: bad budgets"):
        pretrain(tmp_path / "a", max_val_tokens=val, max_train_tokens=train)
    assert not list(tmp_path.iterdir())


def test_reading_stops_when_the_budgets_are_full(tmp_path: Path) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "on and on " * 100

    out = pretrain(tmp_path / "a", endless(), max_train_tokens=50_000, shuffle_buffer=20)
    assert len(stream(out, "train")) == 50_000
    assert read < 20_000
