"""Properties 12 and 13: packed rows have the logits and the loss of their documents alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adapters.tiny_model import Attention, TinyModel, causal
from tests.feed.making import Doc, recipe_of, scratch, write_store
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.torch import Tensors, block_mask, cu_seqlens, loss_sum, sdpa_mask

LENGTH, VOCAB = 24, 400
LENGTHS = st.lists(st.integers(2, 60), min_size=3, max_size=6)


def sdpa(batch: dict[str, Tensor]) -> partial[Tensor]:
    return partial(scaled_dot_product_attention, attn_mask=sdpa_mask(batch["segment_ids"]))


def flex(batch: dict[str, Tensor]) -> partial[Tensor]:
    mask = block_mask(batch["segment_ids"], block_size=16)
    return partial(flex_attention, block_mask=mask)


def varlen(batch: dict[str, Tensor]) -> partial[Tensor]:
    """Attend to each sequence between two borders alone, as kernels for many lengths do."""
    borders, longest = cu_seqlens(batch["segment_ids"])
    assert longest <= LENGTH

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        flat = [x.transpose(1, 2).flatten(0, 1).transpose(0, 1)[None] for x in (query, key, value)]
        parts = [
            causal(*(x[:, :, start:stop] for x in flat))
            for start, stop in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
        ]
        return torch.cat(parts, 2)[0].unflatten(1, (len(query), -1)).transpose(0, 1)

    return partial(attend)


@pytest.mark.parametrize("attention", [sdpa, pytest.param(flex, marks=pytest.mark.soak), varlen])
@given(lengths=LENGTHS)
@settings(max_examples=8, deadline=None)
def test_packed_logits_are_those_of_the_documents_alone(
    attention: Callable[[dict[str, Tensor]], Attention], lengths: list[int]
) -> None:
    model = TinyModel(VOCAB, LENGTH)
    with scratch() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # flex_attention says that it is slow uncompiled
        write_store(folder / "a", lengths)
        feed = Feed(recipe_of(Source(name="a", path=folder / "a", rows="packed"), seq_len=LENGTH))
        batch = Tensors()(feed.batch(0))
        packed = model(batch["input_ids"], batch["position_ids"], attention(batch))
        assert not packed.isnan().any()
        for row, segments in enumerate(batch["segment_ids"]):
            for segment in segments[segments > 0].unique():
                here = segments == segment
                ids = batch["input_ids"][row, here][None]
                alone = model(ids, torch.arange(ids.shape[1])[None], causal)
                torch.testing.assert_close(packed[row, here], alone[0], atol=1e-5, rtol=1e-5)


def test_without_the_mask_the_logits_are_others() -> None:
    model = TinyModel(VOCAB, LENGTH)
    with scratch() as folder, torch.no_grad():
        write_store(folder / "a", [9, 8, 7, 30])
        feed = Feed(recipe_of(Source(name="a", path=folder / "a", rows="packed"), seq_len=LENGTH))
        batch = Tensors()(feed.batch(0))
        masked = model(batch["input_ids"], batch["position_ids"], sdpa(batch))
        whole = model(batch["input_ids"], batch["position_ids"], causal)
        assert not torch.allclose(masked, whole, atol=1e-3)


@given(lengths=LENGTHS, grad_accum=st.sampled_from([1, 2]))
@settings(max_examples=20, deadline=None)
def test_borders_are_those_of_numpy(lengths: list[int], grad_accum: int) -> None:
    with scratch() as folder:
        write_store(folder / "a", lengths)
        source = Source(name="a", path=folder / "a", rows="packed")
        feed = Feed(recipe_of(source, seq_len=LENGTH, grad_accum=grad_accum))
        batch = feed.batch(0)
        borders, longest = cu_seqlens(torch.from_numpy(batch.segment_ids))
    assert np.array_equal(borders.numpy(), batch.cu_seqlens())
    assert borders.dtype == torch.int32
    assert longest == np.diff(batch.cu_seqlens()).max()


def alone(model: TinyModel, document: Doc) -> tuple[float, float]:
    """Return the loss sum and the weight sum of a document in a row of its own, uncut."""
    ids = torch.tensor(document.tokens)[None]
    positions = torch.arange(ids.shape[1] - 1)[None]
    logits = model(ids[:, :-1], positions, causal)
    weights = torch.tensor(document.weights)[None, 1:]
    batch = {"labels": ids[:, 1:], "loss_weights": weights}
    return float(loss_sum(logits, batch)), float(weights.sum())


@given(
    lengths=st.lists(st.integers(2, LENGTH + 1), min_size=4, max_size=12),
    seed=st.integers(0, 9),
    parts=st.sampled_from([(1, 1), (2, 1), (1, 4), (3, 1), (2, 2), (3, 2)]),
)
@settings(max_examples=15, deadline=None)
def test_loss_sums_do_not_change_with_packing_ranks_or_microbatches(
    lengths: list[int], seed: int, parts: tuple[int, int]
) -> None:
    world_size, grad_accum = parts
    model = TinyModel(VOCAB, LENGTH, dtype=torch.float64)
    with scratch() as folder, torch.no_grad():
        documents = write_store(folder / "a", lengths, sidecar="weights", seed=seed)
        trained = [doc for doc in documents if sum(doc.weights[1:]) > 0]
        if not trained:
            return
        source = Source(name="a", path=folder / "a", rows="packed")
        rows = Feed(recipe_of(source, seq_len=LENGTH)).plans[0].num_rows
        size = rows * 4  # four epochs in a step: whatever parts it is cut into
        feed = Feed(
            recipe_of(source, seq_len=LENGTH, global_batch_size=size, grad_accum=grad_accum)
        )
        sums = []
        for rank in range(world_size):
            batch = Tensors()(feed.batch(0, rank=rank, world_size=world_size))
            for a in range(grad_accum):
                micro = {name: tensor[a] for name, tensor in batch.items()}
                part = batch if grad_accum == 1 else micro
                logits = model(part["input_ids"], part["position_ids"], sdpa(part))
                sums.append(float(loss_sum(logits, part)))
        losses, weights = zip(*(alone(model, doc) for doc in trained), strict=True)
    assert feed.weight_sum(0) == pytest.approx(4 * sum(weights), rel=1e-6)
    assert sum(sums) == pytest.approx(4 * sum(losses), rel=1e-6)
