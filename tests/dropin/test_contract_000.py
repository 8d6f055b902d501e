"""Contract 000, sentence by sentence, through its names, arguments and files alone."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tokenreel.dropin import (
    GPTDataLoader,
    GPTEpisodeDataLoader,
    load_training_config,
    make_loader,
)
from tokenreel.errors import ConfigError, TokenreelError

LENGTHS = (3, 9, 1, 5, 2, 12, 4)  # of episodes 0 to 6; block_size is 4
PAD = 50256


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven episodes; token 100·k + i is token i of episode k, and is trained where i is odd."""
    write(tmp_path / "train", mask=np.uint8)
    write(tmp_path / "val", mask=np.float32)
    return tmp_path


def write(folder: Path, *, mask: Any = None) -> None:
    folder.mkdir(parents=True)
    tokens = [100 * k + i for k, length in enumerate(LENGTHS) for i in range(length)]
    np.array(tokens, np.uint32).tofile(folder / "tokens.bin")
    starts = np.cumsum(LENGTHS) - LENGTHS
    np.stack((starts, LENGTHS), axis=1).astype(np.uint64).tofile(folder / "episodes.idx")
    if mask is not None:
        (np.array(tokens) % 100 % 2).astype(mask).tofile(folder / "mask.bin")


def config(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(batch_size=2, block_size=4, device="cpu", **more)


def shown(*batches: tuple[torch.Tensor, ...]) -> list[int]:
    return [int(first) // 100 for batch in batches for first in batch[0][:, 0]]


def row_of(episode: int, batch: tuple[torch.Tensor, ...]) -> list[list[int]]:
    number = shown(batch).index(episode)
    return [tensor[number].tolist() for tensor in batch]


def whole(loader: GPTEpisodeDataLoader) -> dict[int, list[list[int]]]:
    """Return the rows of an epoch by episode."""
    rows: dict[int, list[list[int]]] = {}
    for _ in range(3):
        batch = loader.get_batch("train")
        rows |= {episode: row_of(episode, batch) for episode in shown(batch)}
    return rows


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("mode", ["epoch", "random"])
@pytest.mark.parametrize("split", ["train", "val"])
def test_get_batch_always_returns_fixed_shapes(
    folder: Path, split: str, mode: str, masked: bool
) -> None:
    loader = GPTEpisodeDataLoader(config(), None, folder, masked, mode, pad_token_id=PAD)
    for _ in range(9):
        batch = loader.get_batch(split)
        assert [tuple(tensor.shape) for tensor in batch] == [(2, 4)] * (3 if masked else 2)
        assert [tensor.dtype for tensor in batch[:2]] == [torch.int64] * 2
        assert all(tensor.dtype == torch.float32 for tensor in batch[2:])


def test_all_ten_arguments_are_positional_too(folder: Path) -> None:
    tokenizer = SimpleNamespace(eos_id=7)
    loader = GPTEpisodeDataLoader(
        config(), tokenizer, folder, True, "epoch", False, False, 3, PAD, 5
    )
    assert shown(*(loader.get_batch() for _ in range(2))) == [1, 3, 5, 1]
    assert loader.pad_token_id == PAD


def test_episodes_are_padded_cut_and_masked_by_the_padding_rule(folder: Path) -> None:
    loader = GPTEpisodeDataLoader(config(pad_token_id=PAD), None, folder, use_loss_mask=True)
    rows = whole(loader)
    assert rows[0] == [[0, 1, 2, PAD], [1, 2, PAD, PAD], [1, 0, 0, 0]]  # n < L
    assert rows[3] == [[300, 301, 302, 303], [301, 302, 303, 304], [1, 0, 1, 0]]  # n == L
    assert rows[5] == [[500, 501, 502, 503], [501, 502, 503, 504], [1, 0, 1, 0]]  # n > L
    assert set(rows) == {0, 1, 3, 4, 5, 6}  # episode 2 has fewer than 2 tokens


def test_a_mask_of_floats_is_the_same_mask(folder: Path) -> None:
    loader = GPTEpisodeDataLoader(
        config(), None, folder, use_loss_mask=True, epoch_shuffle=False, pad_token_id=PAD
    )
    for _ in range(3):
        assert all(map(torch.equal, loader.get_batch("train"), loader.get_batch("val")))


def test_without_masks_pairs_are_returned_with_one_warning(tmp_path: Path) -> None:
    write(tmp_path / "train")
    with pytest.warns(UserWarning, match=r"mask\.bin") as said:
        loader = GPTEpisodeDataLoader(config(), None, tmp_path, True, pad_token_id=PAD)
        assert [len(loader.get_batch()) for _ in range(5)] == [2] * 5
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GPTEpisodeDataLoader(config(), None, tmp_path, pad_token_id=PAD).get_batch()


def test_an_epoch_shows_each_episode_once_and_the_next_in_another_order(folder: Path) -> None:
    loader = GPTEpisodeDataLoader(config(), None, folder, pad_token_id=PAD, epoch_drop_last=False)
    epochs = [shown(*(loader.get_batch() for _ in range(3))) for _ in range(6)]
    assert all(sorted(epoch) == [0, 1, 3, 4, 5, 6] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    again = GPTEpisodeDataLoader(config(), None, folder, pad_token_id=PAD, epoch_drop_last=False)
    assert [shown(*(again.get_batch() for _ in range(3))) for _ in range(6)] == epochs


def test_drop_last_starts_the_next_epoch_where_too_few_remain(folder: Path) -> None:
    four = SimpleNamespace(batch_size=4, block_size=4, device="cpu", epoch_shuffle=False)
    for drop_last, expected in [(True, [0, 1, 3, 4] * 2), (False, [0, 1, 3, 4, 5, 6, 0, 1])]:
        loader = GPTEpisodeDataLoader(
            four, None, folder, epoch_drop_last=drop_last, pad_token_id=PAD
        )
        assert shown(loader.get_batch(), loader.get_batch()) == expected


def test_random_mode_draws_uniformly_and_with_replacement(folder: Path) -> None:
    loader = GPTEpisodeDataLoader(
        config(pad_token_id=PAD), None, folder, batch_sampling_mode="random"
    )
    counts = Counter(shown(*(loader.get_batch() for _ in range(600))))
    assert set(counts) == {0, 1, 3, 4, 5, 6}
    assert all(150 < count < 250 for count in counts.values())


def test_episode_min_tokens_filters_by_length(folder: Path) -> None:
    for least, kept in [(1, [0, 1, 2, 3, 4, 5, 6]), (4, [1, 3, 5, 6]), (12, [5])]:
        loader = GPTEpisodeDataLoader(
            config(), None, folder, pad_token_id=PAD, episode_min_tokens=least
        )
        assert list(loader.train_episode_ids) == list(loader.val_episode_ids) == kept


def test_the_padding_is_the_configs_else_the_tokenizers_else_an_error(folder: Path) -> None:
    tokenizer = SimpleNamespace(eos_id=0)
    assert GPTEpisodeDataLoader(config(pad_token_id=9), tokenizer, folder).pad_token_id == 9
    assert GPTEpisodeDataLoader(config(), tokenizer, folder).pad_token_id == 0
    for tokenizer in (None, SimpleNamespace()):  # type: ignore[assignment]
        with pytest.raises(ConfigError, match="pad"):
            GPTEpisodeDataLoader(config(), tokenizer, folder)


def test_the_attributes_the_contract_sketches_are_there(folder: Path) -> None:
    loader = GPTEpisodeDataLoader(config(), None, folder, True, pad_token_id=PAD)
    for tokens, mask, episodes, ids in [
        (loader.train_tokens, loader.train_mask, loader.train_episodes, loader.train_episode_ids),
        (loader.val_tokens, loader.val_mask, loader.val_episodes, loader.val_episode_ids),
    ]:
        assert tokens.dtype == np.uint32 and len(tokens) == sum(LENGTHS)
        assert mask is not None and len(mask) == len(tokens)
        assert episodes.dtype == np.uint64 and episodes.shape == (7, 2)
        start, length = (int(value) for value in episodes[3])
        assert list(tokens[start : start + length]) == [300, 301, 302, 303, 304]
        assert list(ids) == [0, 1, 3, 4, 5, 6]
    assert GPTEpisodeDataLoader(config(), None, folder, pad_token_id=PAD).train_mask is None


def test_a_split_in_shards_is_shown_but_is_not_one_array(tmp_path: Path) -> None:
    for shard in ("shard_0", "shard_1"):
        write(tmp_path / "train" / shard, mask=np.uint8)
    loader = GPTEpisodeDataLoader(config(), None, tmp_path, True, pad_token_id=PAD)
    assert list(loader.train_episode_ids) == [0, 1, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13]
    _, y, mask = loader.get_batch()
    assert torch.equal(mask, ((y % 100 % 2 == 1) & (y != PAD)).float())
    for name in ("train_tokens", "train_mask", "train_episodes"):
        with pytest.raises(ConfigError) as caught:
            getattr(loader, name)
        assert str(caught.value) == (
            "split train is not one array (expected one shard, got 2); "
            "read it through tokenreel.open_store"
        )


def test_the_log_has_the_contracts_line_at_each_epoch(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    loader = GPTEpisodeDataLoader(config(), None, folder, True, pad_token_id=PAD)
    at_init = " ".join(caplog.messages)
    for fact in ("split=train", "split=val", "episodes=6", "tokens=36", "mask=true"):
        assert fact in at_init
    caplog.clear()
    for _ in range(9):
        loader.get_batch()
    assert caplog.messages[-1] == (
        "[EpisodeLoader] split=train epoch=2 episodes=6 batches=3 shuffle=true drop_last=true "
        f"pad_id={PAD} mask=true"
    )
    assert len(caplog.messages) == 3


def test_settings_may_be_numpys_numbers_and_torchs_device(folder: Path) -> None:
    settings = SimpleNamespace(
        batch_size=np.int64(2), block_size=np.int32(4), device=torch.device("cpu")
    )
    settings.epoch_shuffle, settings.pad_token_id = np.bool_(False), np.uint32(PAD)
    batch = GPTEpisodeDataLoader(settings, None, folder).get_batch()
    assert shown(batch) == [0, 1]
    assert batch[0].device.type == "cpu"


def test_a_missing_val_is_refused_when_it_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "train")
    loader = GPTEpisodeDataLoader(config(), None, tmp_path, pad_token_id=PAD)
    loader.get_batch("train")
    with pytest.raises(TokenreelError, match="val"):
        loader.get_batch("val")


@pytest.mark.parametrize("name", ["tokens.bin", "episodes.idx"])
def test_episodes_need_both_files(folder: Path, name: str) -> None:
    (folder / "train" / name).unlink()
    with pytest.raises(TokenreelError, match=name):
        GPTEpisodeDataLoader(config(), None, folder, pad_token_id=PAD)


XML = """<config><training>
  <dataset_mode>{mode}</dataset_mode> <!-- token_stream | sft_episode -->
  <batch_sampling_mode>random</batch_sampling_mode>
  <epoch_shuffle>true</epoch_shuffle>
  <epoch_drop_last>true</epoch_drop_last>
  <epoch_seed>1337</epoch_seed>
  <pad_token_id>50256</pad_token_id>
  <episode_min_tokens>2</episode_min_tokens>
  <batch_size>2</batch_size><block_size>4</block_size><device>cpu</device>
</training></config>"""


@pytest.mark.parametrize(
    ("mode", "kind"), [("token_stream", GPTDataLoader), ("sft_episode", GPTEpisodeDataLoader)]
)
def test_the_xml_chooses_the_loader(folder: Path, mode: str, kind: type) -> None:
    (folder / "config.xml").write_text(XML.format(mode=mode))
    loader = make_loader(load_training_config(folder / "config.xml"), None, folder)
    assert type(loader) is kind
    assert [tuple(tensor.shape) for tensor in loader.get_batch(split="val")] == [(2, 4)] * 2


def test_without_a_mode_it_is_a_token_stream_and_y_is_x_shifted(folder: Path) -> None:
    loader = make_loader(config(), None, folder)
    assert isinstance(loader, GPTDataLoader)
    x, y = loader.get_batch()
    assert x.dtype == y.dtype == torch.int64
    assert torch.equal(x[:, 1:], y[:, :-1])


@pytest.mark.parametrize("mode", ["epoch", "random"])
def test_a_state_goes_on_in_both_splits(folder: Path, mode: str) -> None:
    def make() -> GPTEpisodeDataLoader:
        return GPTEpisodeDataLoader(config(), None, folder, True, mode, pad_token_id=PAD)

    first, second = make(), make()
    for split in ("train", "val", "train", "train", "train"):
        first.get_batch(split)
    second.load_state_dict(first.state_dict())
    for split in ("val", "train", "train", "val"):
        assert all(map(torch.equal, first.get_batch(split), second.get_batch(split)))
