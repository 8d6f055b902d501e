"""Tensors over the feed's memory, and loaders that can be wound to any step."""

from __future__ import annotations

import gc
import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.adapters.making import FIELDS, equals, mixed_recipe, write_stores
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

from tokenreel.errors import ConfigError, EndlessError, MismatchError
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.plain import CommonFields
from tokenreel.feed.recipe import Recipe
from tokenreel.testing import check_resume
from tokenreel.torch import FeedDataset, FeedLoader, Tensors
from tokenreel.torch.transfer import Transfer, host_memory, torch_memory


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    write_stores(tmp_path)
    return mixed_recipe(tmp_path)


class Loading:
    """A loader whose batches are plain arrays and whose state has been through JSON."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for batch in self.loader:
            yield {name: tensor.numpy().copy() for name, tensor in batch.items()}

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(json.dumps(self.loader.state_dict()))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)


@pytest.mark.parametrize("grad_accum", [1, 2])
def test_torch_batches_are_numpys_and_share_their_memory(recipe: Recipe, grad_accum: int) -> None:
    feed = Feed(replace(recipe, grad_accum=grad_accum))
    tensors = Tensors()
    for step in range(12):
        batch = feed.batch(step, rank=1, world_size=2, extra=("attention_mask",))
        made = tensors(batch)
        assert equals(made, batch)
        for name in FIELDS:
            assert made[name].data_ptr() == getattr(batch, name).ctypes.data
        assert made["input_ids"].dtype == made["labels"].dtype == torch.int64
        assert made["attention_mask"].dtype == torch.bool
        assert made["source_ids"].dtype == torch.int32


@pytest.mark.filterwarnings("error")
def test_fields_that_all_rows_share_have_one_row_of_memory() -> None:
    shared, tensors = CommonFields(16).of_shape((2, 3, 16), masked=True), Tensors()
    ids = np.arange(96).reshape(2, 3, 16)
    shared = {"input_ids": ids, "labels": ids, "source_ids": ids[..., 0].copy(), **shared}
    batches = [Batch(step=step, **shared) for step in range(2)]
    first, second = map(tensors, batches)
    assert equals(first, batches[0]) and equals(second, batches[1])
    for name in ("loss_weights", "segment_ids", "position_ids", "attention_mask"):
        assert first[name] is second[name]
        assert first[name].stride() == (0, 0, 1)
    moved = Transfer("meta")
    assert moved(first)["loss_weights"] is moved(second)["loss_weights"]
    assert moved(first)["loss_weights"].shape == (2, 3, 16)


def test_what_is_written_into_one_batch_is_not_in_the_next() -> None:
    shared, tensors = CommonFields(4).of_shape((2, 4), masked=True), Tensors()
    ids = np.arange(8).reshape(2, 4)
    batch = Batch(step=0, input_ids=ids, labels=ids, source_ids=ids[:, 0].copy(), **shared)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            made = tensors(batch)
            for name in ("loss_weights", "segment_ids", "position_ids", "attention_mask"):
                with pytest.raises(RuntimeError, match="single memory location"):
                    made[name][:, 1:] = 0
                made[name].fill_(0)
            assert not equals(made, batch)
            assert equals(tensors(batch), batch)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_read_only_rows_that_differ_are_not_taken_for_one_row_that_is_shared() -> None:
    rows = np.arange(8).reshape(2, 4)
    rows.flags.writeable = False
    named: dict[str, Any] = dict.fromkeys(
        ("labels", "loss_weights", "segment_ids", "position_ids"), rows
    )
    batch = Batch(step=0, input_ids=rows, source_ids=rows[:, 0], **named)
    assert equals(Tensors()(batch), batch)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_are_made_in_the_memory_that_is_given(recipe: Recipe, prefetch: int) -> None:
    given: list[np.ndarray] = []

    def allocate(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        given.append(torch_memory(shape, dtype))  # what is pinned where there is a GPU
        return given[-1]

    feed = Feed(recipe)
    batches = iter(FeedDataset(recipe, prefetch=prefetch, allocate=allocate))
    for step, batch in enumerate(islice(batches, 6)):
        assert equals(batch, feed.batch(step))
        places = {array.ctypes.data for array in given}
        assert {batch[name].data_ptr() in places for name in FIELDS if name != "source_ids"} == {
            True
        }


def test_only_a_gpu_is_served_from_pinned_memory() -> None:
    assert host_memory(torch.device("cpu")) is host_memory(torch.device("meta")) is None
    pinned = host_memory(torch.device("cuda", 1))
    assert isinstance(pinned, partial)
    assert (pinned.func, pinned.keywords) == (torch_memory, {"pin_memory": True})


class HostTensor(torch.Tensor):
    """A tensor that keeps account of its way to a GPU, on machines without one."""

    pinned = False
    copies: ClassVar[list[tuple[bool, str, bool]]] = []

    def is_pinned(self, device: Any = None) -> bool:
        return self.pinned

    def pin_memory(self, device: Any = None) -> HostTensor:
        assert not self.pinned, "what is pinned would be copied once more"
        copy = self.clone().as_subclass(HostTensor)
        copy.pinned = True
        return copy

    def to(self, device: Any, *, non_blocking: bool = False) -> HostTensor:  # type: ignore[override]
        self.copies.append((self.pinned, str(device), non_blocking))
        return self


@pytest.mark.parametrize("is_pinned", [False, True])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_copy_to_a_gpu_is_made_from_pinned_memory_and_does_not_block(
    is_pinned: bool, is_repeated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(HostTensor, "copies", [])
    row = torch.arange(3.0).as_subclass(HostTensor)
    row.pinned = is_pinned
    tensor = row.expand(2, 3) if is_repeated else row
    moved = Transfer("cuda:1")({"labels": tensor})["labels"]
    assert HostTensor.copies == [(True, "cuda:1", True)]
    assert moved.tolist() == tensor.tolist()


@pytest.mark.parametrize("prefetch", [0, 3])
def test_weights_changed_on_the_way_hold_from_the_next_batch_on_and_are_resumed(
    recipe: Recipe, prefetch: int
) -> None:
    feed, loader = Feed(recipe), FeedLoader(recipe, prefetch=prefetch)
    stream = iter(loader)
    for step in range(4):
        assert equals(next(stream), feed.batch(step))
    feed.step = 4
    unchanged = feed.batch(4)
    for changed in (feed, loader.feed):
        changed.change_weights({"web": 1, "chat": 20, "notes": 1})
    resumed = FeedLoader(recipe)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    for step, batch, again in zip(range(4, 9), stream, resumed, strict=False):
        assert equals(batch, feed.batch(step)) and equals(again, feed.batch(step))
    assert not np.array_equal(unchanged.input_ids, feed.batch(4).input_ids)


def test_a_loader_yields_the_rank_it_is_and_moves_it_to_the_device(recipe: Recipe) -> None:
    feed = Feed(recipe)
    loader = FeedLoader(recipe, rank=3, world_size=4)
    for step, batch in enumerate(islice(loader, 12)):
        assert equals(batch, feed.batch(step, rank=3, world_size=4))
        assert loader.state_dict()["step"] == step + 1
    moved = next(iter(FeedLoader(recipe, device="meta", prefetch=0)))
    assert {tensor.device.type for tensor in moved.values()} == {"meta"}
    assert [tuple(tensor.shape) for tensor in moved.values()] == [(8, 16)] * 6 + [(8,)]
    few = next(iter(FeedLoader(recipe, fields=["labels"])))
    assert list(few) == ["labels"]


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_loader_resumes_at_every_step_across_epochs(recipe: Recipe, prefetch: int) -> None:
    def make() -> Loading:
        return Loading(FeedLoader(replace(recipe, steps=9), prefetch=prefetch))

    check_resume(make, steps=9)


def test_an_iteration_ends_at_the_border_of_an_epoch_wherever_it_began(recipe: Recipe) -> None:
    feed = Feed(recipe)
    loader = FeedLoader(recipe, epoch_steps=5)
    assert len(loader) == 5
    seen = [batch for _ in range(2) for batch in loader]
    assert len(seen) == 10
    assert all(equals(batch, feed.batch(step)) for step, batch in enumerate(seen))
    resumed = FeedLoader(recipe, epoch_steps=5)
    resumed.load_state_dict({**loader.state_dict(), "step": 7})
    assert [len(list(resumed)) for _ in range(2)] == [3, 5]
    ending = FeedLoader(replace(recipe, steps=7), epoch_steps=5)
    assert [len(list(ending)) for _ in range(2)] == [5, 2]
    with pytest.warns(UserWarning, match="the run has ended: all 7 steps were streamed"):
        assert list(ending) == []
    with pytest.raises(EndlessError, match="a run without end has no length; give the recipe ste"):
        len(FeedLoader(recipe))


def test_torchs_loaders_yield_each_step_once_and_in_order(recipe: Recipe) -> None:
    feed = Feed(recipe)
    for kind in (DataLoader, StatefulDataLoader):
        loader = kind(FeedDataset(recipe, epoch_steps=7), batch_size=None)
        batches = [batch for _ in range(2) for batch in loader]
        assert len(batches) == 14
        assert all(equals(batch, feed.batch(step)) for step, batch in enumerate(batches))


def test_a_stateful_data_loader_resumes_exactly(recipe: Recipe) -> None:
    def make() -> StatefulDataLoader[Any]:
        dataset = FeedDataset(recipe, rank=1, world_size=2, epoch_steps=9)
        return StatefulDataLoader(dataset, batch_size=None)

    feed = Feed(recipe)
    expected = [feed.batch(step, rank=1, world_size=2) for step in range(18)]
    for taken in (0, 1, 4, 9):
        loader = make()
        stream = iter(loader)
        for batch in expected[:taken]:
            assert equals(next(stream), batch)
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        resumed = make()
        resumed.load_state_dict(state)
        rest = list(resumed)
        assert len(rest) == (9 if taken == 9 else 9 - taken)
        assert all(map(equals, rest, expected[taken:]))


@pytest.mark.filterwarnings("ignore:.*fork")  # said by JAX, which takes no part in it
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_worker_processes_are_refused(
    recipe: Recipe, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch waits so long for each worker that has failed: 5 s.
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    for kind in (DataLoader, StatefulDataLoader):
        loader = kind(
            FeedDataset(recipe), batch_size=None, num_workers=1, multiprocessing_context=start
        )
        with pytest.raises(ConfigError, match="worker processes would repeat them") as caught:
            next(iter(loader))
        # A traceback of the worker within the message would hide it.
        assert str(caught.value).startswith("a feed has one place to count its steps, ")
        assert "\n" not in str(caught.value)
        del caught
        gc.collect()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda", r"^torch sees no GPU for the device 'cuda'; .*use device=\"cpu\"$"),
        (torch.device("cuda", 3), r"^torch sees no GPU for the device 'cuda:3'; "),
        ("cdua", r"^torch cannot use the device 'cdua': Expected one of cpu, cuda, .*; use dev"),
        ("mps", r"^torch cannot use the device 'mps': .*; use device=\"cpu\", or a device that"),
    ],
)
def test_a_device_that_is_not_there_is_refused_in_a_line_before_anything_is_opened(
    device: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        FeedLoader("no_such_recipe.toml", device=device)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_state_of_another_run_is_refused(recipe: Recipe) -> None:
    other = FeedLoader(replace(recipe, seed=12)).state_dict()
    with pytest.raises(MismatchError, match=r"recipe.seed \(expected 12, got 11\)"):
        FeedLoader(recipe).load_state_dict(other)


def test_bad_arguments_are_refused(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, message in [
        ({"rank": 0}, "rank and world_size are given together or not at all"),
        ({"rank": 2, "world_size": 2}, r"bad rank \(expected 0 to 1, got 2\)"),
        ({"fields": ["tokens"]}, r"unknown fields of a batch \(expected input_ids, .*, got tokens"),
        ({"prefetch": -1}, r"bad prefetch \(expected >= 0, got -1\)"),
        ({"epoch_steps": 0}, r"bad epoch_steps \(expected >= 1, got 0\)"),
    ]:
        with pytest.raises(ConfigError, match=message):
            iter(FeedLoader(recipe, **options))  # type: ignore[arg-type]
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError) as caught:
        iter(FeedLoader(recipe))
    assert str(caught.value) == (
        "this is one of several processes, but torch.distributed is not running "
        "(expected WORLD_SIZE=1, got WORLD_SIZE=4); "
        "call init_process_group first, or give rank and world_size"
    )


def test_a_loader_is_given_no_workers(recipe: Recipe) -> None:
    with pytest.raises(ConfigError) as caught:
        FeedLoader(recipe, num_workers=2)
    assert str(caught.value) == (
        "a FeedLoader needs no worker processes: a thread makes batches ahead "
        "(expected num_workers=0, got 2); leave num_workers out; prefetch says how many batches "
        "are made ahead"
    )
    assert next(iter(FeedLoader(recipe, num_workers=0)))
