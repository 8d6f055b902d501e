"""Contract 000: padding, truncation, masks, epochs, log lines, and an exact resume."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dropin.making import PAD, config, numbered_episodes, numbers_of, padded, put_split
from tests.feed.making import scratch

from tokenreel import native
from tokenreel.dropin import GPTDataLoader, GPTEpisodeDataLoader, make_loader
from tokenreel.errors import ConfigError, DamageError
from tokenreel.testing import check_resume

LENGTHS = [3, 7, 8, 20, 2, 6, 1, 9, 5, 4, 7, 7]  # block_size is 6: 7 tokens fill a row exactly


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    episodes = numbered_episodes(LENGTHS)
    masks = [[(token + place) % 2 for place, token in enumerate(episode)] for episode in episodes]
    put_split(tmp_path / "train", episodes, masks)
    put_split(tmp_path / "val", numbered_episodes([5, 9, 3]))
    return tmp_path


def epoch_numbers(loader: GPTEpisodeDataLoader, batches: int, split: str = "train") -> list[int]:
    return [number for _ in range(batches) for number in numbers_of(loader.get_batch(split))]


def test_every_batch_has_one_shape_and_dtype(folder):
    for mode in ("epoch", "random"):
        with warnings.catch_warnings(action="ignore"):
            loader = GPTEpisodeDataLoader(config(), None, folder, True, batch_sampling_mode=mode)
        for _ in range(7):
            x, y, mask = loader.get_batch()
            assert x.shape == y.shape == mask.shape == (4, 6)
            assert (x.dtype, y.dtype, mask.dtype) == (torch.int64, torch.int64, torch.float32)
            assert x.is_contiguous() and y.is_contiguous() and mask.is_contiguous()


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    block_size=st.integers(1, 9),
    kernel=st.booleans(),
    mask_dtype=st.sampled_from(["u1", "<f4"]),
)
def test_rows_are_padded_and_cut_as_the_contract_spells_it(lengths, block_size, kernel, mask_dtype):
    episodes = numbered_episodes(lengths)
    masks = [[(i * 7 + j) % 2 for j in range(n)] for i, n in enumerate(lengths)]
    with scratch() as place, pytest.MonkeyPatch.context() as patch:
        if not kernel:
            patch.setattr(native, "extension", lambda: None)
        put_split(place / "train", episodes, masks, mask_dtype=mask_dtype)
        shape = config(batch_size=len(lengths), block_size=block_size)
        loader = GPTEpisodeDataLoader(shape, None, place, True, episode_min_tokens=1)
        x, y, mask = loader.get_batch()
        for row, number in enumerate(numbers_of((x, y))):
            expected = padded(episodes[number], block_size, PAD)
            assert (x[row].tolist(), y[row].tolist()) == expected
            assert mask[row].tolist() == padded(masks[number], block_size, 0)[1]


def test_the_mask_belongs_to_y_and_not_to_x(tmp_path):
    put_split(tmp_path / "train", [[10, 11, 12, 13]], [[0, 0, 1, 1]])
    shape = config(batch_size=1, block_size=5)
    x, y, mask = GPTEpisodeDataLoader(shape, None, tmp_path, True).get_batch()
    assert x.tolist() == [[10, 11, 12, 13, PAD]]
    assert y.tolist() == [[11, 12, 13, PAD, PAD]]
    assert mask.tolist() == [[0, 1, 1, 0, 0]]


def test_padding_that_spells_a_trained_token_is_not_trained(tmp_path):
    put_split(tmp_path / "train", [[10, 11, PAD]], [[1, 1, 1]])
    shape = config(batch_size=1, block_size=4)
    _, y, mask = GPTEpisodeDataLoader(shape, None, tmp_path, True).get_batch()
    assert y.tolist() == [[11, PAD, PAD, PAD]]
    assert mask.tolist() == [[1, 1, 0, 0]]


def test_without_drop_last_every_episode_comes_exactly_once_per_epoch(folder):
    loader = GPTEpisodeDataLoader(config(), None, folder, epoch_drop_last=False)
    long_enough = [number for number, length in enumerate(LENGTHS) if length >= 2]
    assert loader.train_episode_ids.tolist() == long_enough
    shown = epoch_numbers(loader, 11)  # 4 epochs of 11 episodes
    for epoch in range(4):
        assert sorted(shown[epoch * 11 : epoch * 11 + 11]) == long_enough
    assert len({tuple(shown[epoch * 11 : epoch * 11 + 11]) for epoch in range(4)}) == 4


def test_with_drop_last_what_fills_no_batch_is_left_out_and_nothing_comes_twice(folder):
    loader = GPTEpisodeDataLoader(config(), None, folder)
    for _ in range(5):
        shown = epoch_numbers(loader, 2)  # 11 episodes: two batches of 4
        assert len(set(shown)) == 8


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, 2**70])
def test_any_whole_number_is_a_seed_and_the_next_epoch_is_the_next_seed(folder, seed):
    one, other = (
        GPTEpisodeDataLoader(config(epoch_seed=number), None, folder) for number in (seed, seed + 1)
    )
    assert epoch_numbers(one, 4)[8:] == epoch_numbers(other, 2)


def test_without_shuffle_episodes_come_as_they_are_stored(folder):
    loader = GPTEpisodeDataLoader(config(), None, folder, epoch_shuffle=False)
    assert epoch_numbers(loader, 4) == [0, 1, 2, 3, 4, 5, 7, 8] * 2


def test_random_mode_draws_with_replacement_all_alike(folder):
    loader = GPTEpisodeDataLoader(config(batch_size=64), None, folder, batch_sampling_mode="random")
    shown = epoch_numbers(loader, 40)
    counts = np.bincount(shown, minlength=len(LENGTHS))
    assert counts[6] == 0  # too short
    others = np.delete(counts, 6)
    assert abs(others - len(shown) / 11).max() < 5 * np.sqrt(len(shown) / 11)
    assert any(len(set(shown[at : at + 11])) < 11 for at in range(0, 99, 11))


def test_the_default_mode_is_epoch_and_arguments_win_over_the_config(folder):
    assert GPTEpisodeDataLoader(config(), None, folder).batch_sampling_mode == "epoch"
    asked = config(batch_sampling_mode="random")
    assert GPTEpisodeDataLoader(asked, None, folder).batch_sampling_mode == "random"
    loader = GPTEpisodeDataLoader(asked, None, folder, batch_sampling_mode="epoch")
    assert loader.batch_sampling_mode == "epoch"


def test_short_episodes_are_filtered(folder):
    loader = GPTEpisodeDataLoader(config(episode_min_tokens=7), None, folder)
    assert loader.train_episode_ids.tolist() == [1, 2, 3, 7, 10, 11]
    assert loader.val_episode_ids.tolist() == [1]


def test_val_has_an_order_and_a_place_of_its_own(folder):
    loader = GPTEpisodeDataLoader(config(batch_size=3), None, folder)
    alone = GPTEpisodeDataLoader(config(batch_size=3), None, folder)
    mixed = [numbers_of(loader.get_batch("train" if n % 2 else "val")) for n in range(6)]
    assert mixed[1::2] == [numbers_of(alone.get_batch("train")) for _ in range(3)]
    assert sorted(mixed[0]) == [0, 1, 2]


@pytest.mark.parametrize("mode", ["epoch", "random"])
def test_batches_of_a_missing_val_resume_too(tmp_path, mode):
    put_split(tmp_path / "train", numbered_episodes([5] * 7))

    def make() -> Stream:
        return Stream(GPTEpisodeDataLoader(config(), None, tmp_path, batch_sampling_mode=mode))

    with warnings.catch_warnings(action="ignore"):
        check_resume(make, steps=6)


@pytest.mark.parametrize(
    ("tokenizer", "pad"),
    [
        (SimpleNamespace(eos_id=5), 5),
        (SimpleNamespace(eos_id=lambda: 6), 6),
        (SimpleNamespace(eos_token_id=7), 7),
    ],
)
def test_the_pad_id_is_the_tokenizers_end_of_text_where_none_is_set(folder, tokenizer, pad):
    assert GPTEpisodeDataLoader(config(pad_token_id=None), tokenizer, folder).pad_token_id == pad
    assert GPTEpisodeDataLoader(config(), tokenizer, folder).pad_token_id == PAD
    given = GPTEpisodeDataLoader(config(), tokenizer, folder, pad_token_id=0)
    assert given.pad_token_id == 0


@pytest.mark.parametrize("tokenizer", [None, SimpleNamespace(), SimpleNamespace(eos_id=-1)])
def test_without_any_pad_id_there_is_a_clear_error(folder, tokenizer):
    with pytest.raises(ConfigError, match=r"there is no id to pad with .*set pad_token_id"):
        GPTEpisodeDataLoader(config(pad_token_id=None), tokenizer, folder)


def test_a_missing_mask_warns_once_and_gives_pairs(folder):
    with pytest.warns(UserWarning, match=r"val has no mask\.bin; .* batches of val are") as caught:
        loader = GPTEpisodeDataLoader(config(batch_size=2), None, folder, use_loss_mask=True)
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [len(loader.get_batch(split)) for split in ("train", "val", "val")] == [3, 2, 2]


def test_masks_that_are_not_asked_for_are_not_looked_at(folder, recwarn):
    (folder / "train" / "mask.bin").write_bytes(bytes(5))
    assert len(GPTEpisodeDataLoader(config(), None, folder).get_batch()) == 2
    assert not recwarn.list


def test_the_log_says_what_is_there_and_when_an_epoch_begins(folder, caplog):
    caplog.set_level(logging.INFO, "tokenreel")
    with warnings.catch_warnings(action="ignore"):
        loader = GPTEpisodeDataLoader(config(), None, folder, use_loss_mask=True)
    tokens = sum(LENGTHS)
    assert caplog.messages == [
        f"[EpisodeLoader] split=train episodes=11 filtered=1 tokens={tokens} mask=true",
        "[EpisodeLoader] split=val episodes=3 filtered=0 tokens=17 mask=false",
    ]
    caplog.clear()
    for _ in range(5):
        loader.get_batch()
    assert caplog.messages == [
        f"[EpisodeLoader] split=train epoch={epoch} episodes=11 batches=2 shuffle=true "
        f"drop_last=true pad_id={PAD} mask=true"
        for epoch in range(3)
    ]
    caplog.clear()
    options = {"epoch_shuffle": False, "epoch_drop_last": False}
    GPTEpisodeDataLoader(config(batch_size=22), None, folder, **options).get_batch()
    assert caplog.messages[-2:] == [
        f"[EpisodeLoader] split=train epoch={epoch} episodes=11 batches=1 shuffle=false "
        f"drop_last=false pad_id={PAD} mask=false"
        for epoch in range(2)
    ]


class Stream:
    """A loader as a stream of batches of both splits in turn, with its state through JSON."""

    def __init__(self, loader: Any, splits: tuple[str, ...] = ("train", "train", "val")) -> None:
        self.loader, self.splits = loader, splits
        self.count = 0

    def __iter__(self) -> Iterator[list[Any]]:
        while True:
            split = self.splits[self.count % len(self.splits)]
            self.count += 1
            yield [tensor.numpy() for tensor in self.loader.get_batch(split)]

    def state_dict(self) -> dict[str, Any]:
        state = {"loader": self.loader.state_dict(), "count": self.count}
        decoded: dict[str, Any] = json.loads(json.dumps(state))
        return decoded

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state["loader"])
        self.count = state["count"]


@pytest.mark.parametrize("mode", ["epoch", "random"])
@pytest.mark.parametrize("drop_last", [True, False])
def test_both_modes_and_both_splits_resume_at_every_batch(folder, mode, drop_last):
    def make() -> Stream:
        options = {"batch_sampling_mode": mode, "epoch_drop_last": drop_last}
        return Stream(GPTEpisodeDataLoader(config(batch_size=3), None, folder, **options))

    check_resume(make, steps=9)


def test_the_batch_size_may_change_on_the_way(folder):
    options = {"epoch_drop_last": False}
    whole = GPTEpisodeDataLoader(config(batch_size=1), None, folder, **options)
    expected = epoch_numbers(whole, 30)
    first = GPTEpisodeDataLoader(config(batch_size=4), None, folder, **options)
    shown = epoch_numbers(first, 3)
    second = GPTEpisodeDataLoader(config(batch_size=9), None, folder, **options)
    second.load_state_dict(first.state_dict())
    assert shown + epoch_numbers(second, 2) == expected


def test_a_split_smaller_than_a_batch_logs_that_nothing_is_dropped(folder, caplog):
    loader = GPTEpisodeDataLoader(config(), None, folder)
    caplog.set_level(logging.INFO, "tokenreel")
    assert loader.get_batch("val")[0].shape == (4, 6)
    assert caplog.messages == [
        f"[EpisodeLoader] split=val epoch={epoch} episodes=3 batches=1 shuffle=true "
        f"drop_last=false pad_id={PAD} mask=false"
        for epoch in range(2)
    ]


def test_random_mode_has_one_epoch_and_stays_at_its_begin(folder):
    loader = GPTEpisodeDataLoader(config(), None, folder, batch_sampling_mode="random")
    loader.get_batch()
    assert (loader._epoch_train, loader._pos_train) == (0, 0)
    assert loader._order_train.tolist() == loader.train_episode_ids.tolist()


def test_make_loader_chooses_by_the_mode(folder, tmp_path_factory):
    episodes = make_loader(config(dataset_mode="sft_episode"), None, folder, epoch_seed=3)
    assert isinstance(episodes, GPTEpisodeDataLoader) and episodes.settings.epoch_seed == 3
    stream = tmp_path_factory.mktemp("stream")
    np.arange(100, dtype="<u2").tofile(stream / "train.bin")
    for settings_ in (config(), config(dataset_mode="token_stream")):
        assert isinstance(make_loader(settings_, None, stream), GPTDataLoader)
    with pytest.warns(UserWarning, match="a token stream has no masks"):
        loader = make_loader(config(), None, stream, use_loss_mask=True, epoch_shuffle=False)
    assert len(loader.get_batch()) == 2


def test_a_batch_that_is_kept_stays_as_it_is(folder):
    loader = GPTEpisodeDataLoader(config(), None, folder, batch_sampling_mode="random")
    kept = [loader.get_batch() for _ in range(20)]
    copies = [[tensor.clone() for tensor in batch] for batch in kept]
    for _ in range(20):
        loader.get_batch()
    for batch, copy in zip(kept, copies, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(batch, copy, strict=True))


@pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf")])
def test_a_mask_that_is_no_weight_is_refused_where_it_is_shown_and_only_there(tmp_path, value):
    masks = [[1.0, 1.0, 1.0], [1.0, value, 1.0]]
    put_split(tmp_path / "train", [[1, 2, 3], [4, 5, 6]], masks, mask_dtype="f4")
    settings = config(batch_size=1, epoch_shuffle=False)
    loader = GPTEpisodeDataLoader(settings, None, tmp_path, use_loss_mask=True)
    assert loader.get_batch()[2].tolist() == [[1, 1, 0, 0, 0, 0]]  # what follows is not looked at
    with pytest.raises(DamageError, match=r"mask\.bin: a mask is negative or not a number"):
        loader.get_batch()
