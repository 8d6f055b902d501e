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
from tokenreel.errors import ConfigError, DamageError, TokenreelError

LENGTHS = (3, 9, 1, 5, 2, 12, 4)  # of episodes 0 to 6; block_size is 4
PAD = 50256
ORDERS_OF_1337 = [
    [4, 3, 1, 0, 5, 6],
    [5, 1, 4, 6, 3, 0],
]  # of the six episodes with two tokens or more


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


def test_a_damaged_mask_of_val_takes_no_mask_from_train(folder: Path) -> None:
    """ "If use_loss_mask=True and mask.bin exists: return (x, y, mask)": exists for the split."""
    (folder / "val" / "mask.bin").write_bytes(bytes(5))
    with pytest.warns(
        UserWarning, match=r"val.mask\.bin: .*get_batch\('val'\) is an error"
    ) as said:
        loader = GPTEpisodeDataLoader(config(), None, folder, True, pad_token_id=PAD)
    assert len(said) == 1 and said[0].filename == __file__
    _, y, mask = loader.get_batch("train")
    assert torch.equal(mask, ((y % 100 % 2 == 1) & (y != PAD)).float())
    with pytest.raises(DamageError, match=r"val.mask\.bin: the mask does not fit the tokens"):
        loader.get_batch("val")
    assert len(loader.get_batch("train")) == 3
    assert len(GPTEpisodeDataLoader(config(), None, folder, pad_token_id=PAD).get_batch("val")) == 2


def test_a_damaged_mask_of_train_is_an_error_and_never_a_pair(folder: Path) -> None:
    """ "If masks missing/incomplete: ... return (x, y)": a mask of a wrong size is neither."""
    (folder / "train" / "mask.bin").write_bytes(bytes(5))
    with pytest.raises(DamageError, match=r"train.mask\.bin: the mask does not fit the tokens"):
        GPTEpisodeDataLoader(config(), None, folder, True, pad_token_id=PAD)


def test_masks_of_some_shards_only_give_pairs_with_one_warning(tmp_path: Path) -> None:
    """ "If masks missing/incomplete: behave like today: return (x, y)
    (and optionally warn once)" """
    for shard, mask in (("shard_0", np.uint8), ("shard_1", None)):
        write(tmp_path / "train" / shard, mask=mask)
    write(tmp_path / "val", mask=np.uint8)
    with pytest.warns(UserWarning, match=r"train has a mask\.bin in 1 of 2 shards only") as said:
        loader = GPTEpisodeDataLoader(config(), None, tmp_path, True, pad_token_id=PAD)
    assert len(said) == 1
    assert [len(loader.get_batch(split)) for split in ("train", "val")] == [2, 3]


def orders(loader: GPTEpisodeDataLoader, num_epochs: int) -> list[list[int]]:
    """Return what each epoch of three batches shows."""
    return [shown(*(loader.get_batch() for _ in range(3))) for _ in range(num_epochs)]


def test_the_seed_of_an_epoch_is_epoch_seed_plus_epoch(folder: Path) -> None:
    """ "determinism: seed_epoch = epoch_seed + epoch (if seed set)" """
    ten, eleven = (
        GPTEpisodeDataLoader(config(), None, folder, epoch_seed=seed, pad_token_id=PAD)
        for seed in (10, 11)
    )
    expected = orders(ten, 4)
    assert orders(eleven, 3) == expected[1:]
    assert len({tuple(order) for order in expected}) == 4


def test_the_order_is_the_one_the_original_documents(folder: Path) -> None:
    """ "order = np.array(train_episode_ids); shuffle once if epoch_shuffle", by RandomState.

    Written out, so that no version of numpy and no change of ours can alter it unnoticed.
    """
    loader = GPTEpisodeDataLoader(config(), None, folder, epoch_seed=1337, pad_token_id=PAD)
    assert orders(loader, 2) == ORDERS_OF_1337
    for epoch, order in enumerate(ORDERS_OF_1337):
        rows = np.random.RandomState(1337 + epoch).permutation(6)
        assert order == loader.train_episode_ids[rows].tolist()


def test_epoch_pos_and_order_say_where_each_split_is(folder: Path) -> None:
    """ "Maintain per split: self._epoch_train, self._pos_train, self._order_train,
    self._epoch_val, self._pos_val, self._order_val"; "Batch is next batch_size IDs from
    order[pos:pos+bs]"; "If drop_last=true and remaining < bs: start next epoch" """
    four = SimpleNamespace(batch_size=4, block_size=4, device="cpu", pad_token_id=PAD)
    loader = GPTEpisodeDataLoader(four, None, folder)
    assert (loader._epoch_train, loader._pos_train, loader._epoch_val, loader._pos_val) == (0,) * 4
    first = loader._order_train.tolist()
    assert sorted(first) == loader.train_episode_ids.tolist()
    assert shown(loader.get_batch()) == first[:4]
    assert (loader._epoch_train, loader._pos_train) == (0, 4)
    assert loader._order_train.tolist() == first
    assert shown(loader.get_batch()) == loader._order_train[:4].tolist()  # 2 of 6 are dropped
    assert (loader._epoch_train, loader._pos_train) == (1, 4)
    assert loader._order_train.tolist() != first
    assert (loader._epoch_val, loader._pos_val, loader._order_val.tolist()) == (0, 0, first)
    state = loader.state_dict()
    again = GPTEpisodeDataLoader(four, None, folder)
    again.load_state_dict(state)
    assert (again._epoch_train, again._pos_train) == (1, 4)
    assert again._order_train.tolist() == loader._order_train.tolist()


def test_an_epoch_that_ends_with_a_batch_is_over_when_the_next_batch_is_asked_for(
    folder: Path,
) -> None:
    """ "Batch is next batch_size IDs from order[pos:pos+bs]": pos never runs past its order."""
    loader = GPTEpisodeDataLoader(config(), None, folder, pad_token_id=PAD)
    places = []
    for _ in range(4):
        batch = shown(loader.get_batch())
        places.append((loader._epoch_train, loader._pos_train))
        assert batch == loader._order_train[loader._pos_train - 2 : loader._pos_train].tolist()
    assert places == [(0, 2), (0, 4), (0, 6), (1, 2)]


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_split_smaller_than_a_batch_goes_through_it_again_and_again(
    folder: Path, drop_last: bool
) -> None:
    """ "get_batch(split) must always return: x.shape = (batch_size, block_size)" """
    sixteen = SimpleNamespace(batch_size=16, block_size=4, device="cpu", pad_token_id=PAD)
    loader = GPTEpisodeDataLoader(sixteen, None, folder, True, epoch_drop_last=drop_last)
    batches = [loader.get_batch("val") for _ in range(3)]
    assert all(tensor.shape == (16, 4) for batch in batches for tensor in batch)
    assert (loader._epoch_val, loader._pos_val) == (7, 6)  # 48 rows are eight epochs of 6
    rows = shown(*batches)
    epochs = [rows[at : at + 6] for at in range(0, 48, 6)]
    assert all(sorted(epoch) == [0, 1, 3, 4, 5, 6] for epoch in epochs)
    assert rows[12:16] == epochs[2][:4]  # what the first batch shows a third time


def test_an_index_in_any_order_is_read_and_numbers_stay_those_of_the_file(folder: Path) -> None:
    """ "self.train_episodes = idx where idx[k] = (start, length)": no order of starts is asked."""
    path = folder / "train" / "episodes.idx"
    pairs = np.fromfile(path, np.uint64).reshape(-1, 2)
    turned = [5, 2, 0, 6, 1, 4, 3]  # record k of the new file is this episode of the old
    pairs[turned].tofile(path)
    loader = GPTEpisodeDataLoader(config(), None, folder, True, epoch_shuffle=False, pad_token_id=7)
    assert (loader.train_episodes == pairs[turned]).all()
    assert loader.train_episode_ids.tolist() == [0, 2, 3, 4, 5, 6]  # 1 is too short
    batches = [loader.get_batch() for _ in range(3)]
    assert shown(*batches) == [5, 0, 6, 1, 4, 3]
    assert row_of(6, batches[1]) == [[600, 601, 602, 603], [601, 602, 603, 7], [1, 0, 1, 0]]
    shuffled = GPTEpisodeDataLoader(config(), None, folder, pad_token_id=PAD)
    assert shown(shuffled.get_batch()) == [turned[k] for k in shuffled._order_train[:2]]


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


def test_without_val_its_batches_are_of_train_and_the_training_order_stays(tmp_path: Path) -> None:
    """ "get_batch(split) must always return: x.shape = (batch_size, block_size)"; the contract
    does not say what of, where there is no val/."""
    write(tmp_path / "train", mask=np.uint8)
    loader, alone = (
        GPTEpisodeDataLoader(config(), None, tmp_path, True, pad_token_id=PAD) for _ in range(2)
    )
    with pytest.warns(UserWarning, match=r'no split "val".* is no validation') as said:
        batches = [loader.get_batch(split) for split in ("train", "val") * 3]
    assert len(said) == 1 and said[0].filename == __file__
    assert shown(*batches[::2]) == shown(*(alone.get_batch("train") for _ in range(3)))
    assert sorted(shown(*batches[1::2])) == [0, 1, 3, 4, 5, 6]
    assert all(tensor.shape == (2, 4) for batch in batches for tensor in batch)
    with pytest.raises(ConfigError, match="no split 'test'"):
        loader.get_batch("test")


@pytest.mark.parametrize("name", ["tokens.bin", "episodes.idx"])
def test_episodes_need_both_files(folder: Path, name: str) -> None:
    (folder / "train" / name).unlink()
    with pytest.raises(TokenreelError, match=name):
        GPTEpisodeDataLoader(config(), None, folder, pad_token_id=PAD)


def test_use_loss_mask_of_the_configuration_is_honoured(folder: Path) -> None:
    """ "If use_loss_mask=True and mask.bin exists: return (x, y, mask)" """
    (folder / "config.xml").write_text(
        XML.format(mode="sft_episode").replace(
            "<device>", "<use_loss_mask>true</use_loss_mask><device>"
        )
    )
    settings = load_training_config(folder / "config.xml")
    assert len(GPTEpisodeDataLoader(settings, None, folder).get_batch()) == 3
    assert len(make_loader(settings, None, folder).get_batch()) == 3
    assert len(GPTEpisodeDataLoader(settings, None, folder, use_loss_mask=False).get_batch()) == 2
    assert len(make_loader(settings, None, folder, use_loss_mask=False).get_batch()) == 2
    masked = config(use_loss_mask=True, pad_token_id=PAD)
    assert len(GPTEpisodeDataLoader(masked, None, folder).get_batch()) == 3


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
