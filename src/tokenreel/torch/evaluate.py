"""Evaluation that counts every token once: the same figures however it is run.

Sums of losses and weights are added up over batches and ranks in float64 and divided once,
so the result does not depend on batch size, ranks, microbatches, nor on whether documents
share rows (given a model that keeps segments apart), but for the rounding of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial
from os import PathLike
from typing import Any

import torch
import torch.distributed as dist

from tokenreel.feed.feed import Feed
from tokenreel.feed.losses import Evaluation, LossSums
from tokenreel.feed.plain_labels import refuse_prompts
from tokenreel.feed.recipe import Recipe
from tokenreel.torch.loader import FeedLoader
from tokenreel.torch.loss import loss_by_source
from tokenreel.torch.ranks import Group, running
from tokenreel.torch.tensors import TensorBatch

Forward = Callable[[Any, Mapping[str, torch.Tensor]], torch.Tensor]


def evaluate(
    model: torch.nn.Module,
    recipe: Feed | Recipe | str | PathLike[str],
    *,
    forward: Forward | None = None,
    device: torch.device | str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    group: Group = None,
    prefetch: int = 2,
) -> Evaluation:
    """Return the mean loss over the tokens of a recipe, and that of each source.

    The recipe has `passes`, or else a number of steps. `forward(model, batch)` returns the
    logits [B, T, V]; by default the model is called with input_ids and position_ids by name, as
    models of transformers are, and they keep packed documents apart by these. The model is on
    `device`; meanwhile it is in evaluation mode and keeps no cache of keys. Ranks are those of
    torch.distributed, unless `rank` and `world_size` are given: then the result is of that rank's
    rows alone. Of pairs the tokens of all answers count, those of rejected ones too; prompts, which
    have no labels, are refused.
    """
    own = copy(recipe) if isinstance(recipe, Feed) else recipe  # its step stays where it is
    loader = FeedLoader(
        own, rank=rank, world_size=world_size, group=group, prefetch=prefetch, device=device
    )
    feed = loader.feed
    refuse_prompts(feed.recipe)
    len(feed)  # a run without end is refused here
    sums = LossSums([source.name for source in feed.recipe.sources])
    run = forward or forward_by_name
    feed.step = 0
    with evaluation_mode(model), torch.no_grad():
        for batch in loader:
            losses, weights = _losses(run, model, batch, len(sums.names))
            sums.add(losses.cpu().numpy(), weights.cpu().numpy())
    if running() and rank is None:
        table = torch.from_numpy(sums.table).to(device or "cpu")
        dist.all_reduce(table, group=group)
        sums.table = table.cpu().numpy()
    return sums.mean()


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, without a cache of keys; then all is as it was before.

    A model of transformers that keeps a cache takes a packed row for one document. Modules that
    were in evaluation mode within a model that is trained, frozen ones for instance, stay so.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    configs = {id(config): config for config in map(_config_with_cache, modules) if config}
    model.eval()
    for config in configs.values():
        config.use_cache = False
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for config in configs.values():
            config.use_cache = True


def _config_with_cache(module: torch.nn.Module) -> Any:
    """Return the configuration of a model of transformers that keeps a cache, else None."""
    config = getattr(module, "config", None)
    return config if getattr(config, "use_cache", None) is True else None


def forward_by_name(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Call a model with input_ids and position_ids; return its logits, or what it returns."""
    made = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"])
    logits: torch.Tensor = getattr(made, "logits", made)
    return logits


def _losses(
    run: Forward, model: Any, batch: TensorBatch, num_sources: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of a batch, microbatch by microbatch where it has several."""
    add_up = partial(loss_by_source, num_sources=num_sources, answers="as_text")
    if batch["input_ids"].ndim == 2:
        return add_up(run(model, batch), batch)
    micros = [{name: batch[name][m] for name in batch} for m in range(len(batch["input_ids"]))]
    parts = [add_up(run(model, one), one) for one in micros]
    losses, weights = zip(*parts, strict=True)
    return torch.stack(losses).sum(0), torch.stack(weights).sum(0)
