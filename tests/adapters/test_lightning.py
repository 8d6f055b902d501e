"""A real Lightning loop over a FeedLoader: its checkpoints carry the feed's state."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.adapters.making import equals, mixed_recipe, val_recipe, write_stores

from tokenreel.feed.feed import Feed
from tokenreel.torch import FeedLoader


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_run_resumed_in_mid_epoch_is_the_uninterrupted_one(tmp_path: Path) -> None:
    from tests.adapters.lightning_run import fit

    write_stores(tmp_path)
    recipe = mixed_recipe(tmp_path)
    feed = Feed(recipe)
    whole = fit(recipe, tmp_path / "run", epoch_steps=5)
    assert len(whole.given) == 12
    assert all(equals(batch, feed.batch(step)) for step, batch in enumerate(whole.given))
    for epoch, step in ((0, 3), (1, 9)):
        saved = tmp_path / "run" / f"epoch={epoch}-step={step}.ckpt"
        resumed = fit(recipe, tmp_path / f"from-{step}", resume=saved, epoch_steps=5)
        assert len(resumed.given) == 12 - step
        assert all(equals(b, feed.batch(step + n)) for n, b in enumerate(resumed.given))
        for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
            assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore")
def test_each_validation_of_a_lightning_run_shows_every_row(tmp_path: Path) -> None:
    from tests.adapters.lightning_run import fit

    write_stores(tmp_path)
    val = val_recipe(tmp_path)
    whole = Feed(val)
    module = fit(
        mixed_recipe(tmp_path), tmp_path / "run", val=val, val_check_interval=2, epoch_steps=5
    )
    sanity, *validations = module.validations
    assert len(sanity) == 2 < len(whole)
    assert len(validations) == 5  # after steps 2, 4, 7, 9 and 12
    for batches in validations:
        assert len(batches) == len(whole)
        assert all(equals(batch, whole.batch(step)) for step, batch in enumerate(batches))
    assert len({loss for loss, _ in module.losses}) == 5
    for loss, alone in module.losses:
        assert loss == pytest.approx(alone, rel=1e-6)
    assert module.losses[-1][0] < module.losses[0][0]  # a loss of this model, none that is stale


def test_accelerate_leaves_a_feed_loader_as_it_is(tmp_path: Path) -> None:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    write_stores(tmp_path)
    loader = FeedLoader(mixed_recipe(tmp_path))
    assert Accelerator(cpu=True).prepare(loader) is loader
