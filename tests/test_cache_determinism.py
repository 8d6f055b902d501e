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
from tokenreel.errors import EmptyError

EOT = 4
TEXTS = [f"document {n} " * (n % 5 + 1) for n in range(200)]
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


def documents(ids: list[int]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    begun: list[int] = []
    for number in ids:
        begun.append(number)
        if number == EOT:
            found.append(tuple(begun))
            begun = []
    return [*found, tuple(begun)] if begun else found


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
    before, after = documents(stream(plain, "train")), documents(stream(mixed, "train"))
    assert before == [(*Letters().encode(text), EOT) for text in TEXTS]
    for start in range(0, len(before), 32):
        block, moved = before[start : start + 32], after[start : start + 32]
        assert sorted(moved) == sorted(block) and moved != block
    assert (
        not list((plain / "val").iterdir())
        and read_meta(str(plain / "meta.json"))["val_tokens"] == 0
    )


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=40),
    val=st.integers(0, 60),
    train=st.integers(1, 200),
    capacity=st.integers(5, 80),
)
def test_validation_is_filled_first_and_no_budget_is_exceeded(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    val: int,
    train: int,
    capacity: int,
) -> None:
    texts = [chr(97 + number % 26) * length for number, length in enumerate(lengths)]
    out = tmp_path_factory.mktemp("cache") / "c"
    wanted = _deal([[*Letters().encode(text), EOT] for text in texts if text], val, train)
    budgets = {"max_val_tokens": val, "max_train_tokens": train}
    if not wanted["train"]:
        with pytest.raises(EmptyError):
            pretrain(out, texts, **budgets, shuffle_buffer=None, shard_bytes=2 * capacity)
        assert not list(out.parent.iterdir())
        return
    pretrain(out, texts, **budgets, shuffle_buffer=None, shard_bytes=2 * capacity)
    assert {split: stream(out, split) for split in wanted} == wanted
    meta = read_meta(str(out / "meta.json"))
    assert {f"{split}_tokens": len(ids) for split, ids in wanted.items()}.items() <= meta.items()
    sizes = [path.stat().st_size for path in out.rglob("shard_*.bin")]
    assert all(0 < size <= 2 * capacity for size in sizes)


def _deal(documents: list[list[int]], val: int, train: int) -> dict[str, list[int]]:
    """Deal documents one after the other, as the contract has it."""
    splits: dict[str, list[int]] = {"train": [], "val": []}
    waiting = iter(documents)
    for name, budget in (("val", val), ("train", train)):
        while len(splits[name]) < budget and (ids := next(waiting, None)):
            splits[name] += ids[: budget - len(splits[name])]
    return splits


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
