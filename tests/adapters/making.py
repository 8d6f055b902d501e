"""A small run with everything in it: packed and plain rows, a mixture, weights that anneal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.feed.making import recipe_of, write_store

from tokenreel.feed.batch import Batch
from tokenreel.feed.fields import FIELDS
from tokenreel.feed.recipe import Phase, Recipe, Source

__all__ = ["FIELDS", "SEQ_LEN", "VOCAB", "equals", "mixed_recipe", "val_recipe", "write_stores"]

SEQ_LEN = 16
VOCAB = 1024


def write_stores(folder: Path) -> None:
    """Write the three stores of the run; all tokens differ."""
    write_store(folder / "web", [120, 9, 33, 61], shard_tokens=64)
    write_store(folder / "chat", [12, 25, 3, 18, 7] * 3, sidecar="turns", first_token=400)
    write_store(folder / "notes", [9, 2, 14, 21, 5, 11, 30], first_token=700)


def mixed_recipe(folder: Path, **options: Any) -> Recipe:
    """Return the recipe of the run; paths are below the folder."""
    sources = (
        Source(name="web", path=str(folder / "web"), weight=0.5),
        Source(name="chat", path=str(folder / "chat"), rows="packed", weight=0.3),
        Source(name="notes", path=str(folder / "notes"), rows="packed", weight=0.2),
    )
    phases = [Phase(start_step=3, weights={"web": 1, "chat": 3, "notes": 2}, ramp_steps=6)]
    settings = {"seq_len": SEQ_LEN, "global_batch_size": 8, "seed": 11, "phases": phases, **options}
    return recipe_of(*sources, **settings)


def val_recipe(folder: Path, **options: Any) -> Recipe:
    """Return the recipe that shows every row of the three stores once."""
    sources = (
        Source(name="web", path=str(folder / "web")),
        Source(name="chat", path=str(folder / "chat"), rows="packed"),
        Source(name="notes", path=str(folder / "notes"), rows="packed"),
    )
    settings = {"seq_len": SEQ_LEN, "global_batch_size": 8, "seed": 11, "passes": 1, **options}
    return recipe_of(*sources, **settings)


def equals(made: dict[str, Any], batch: Batch) -> bool:
    """Compare the fields of an adapter's batch with numpy's: values and shapes."""
    return set(made) == set(FIELDS) and all(
        np.array_equal(np.asarray(made[name]), getattr(batch, name)) for name in FIELDS
    )
