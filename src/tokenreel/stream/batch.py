"""What a trainer is handed: a batch of fixed shape, [A, B, T]."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenreel.display import named, never_raising
from tokenreel.errors import MissingExtraError

STORED = ("input_ids", "labels", "segment_ids", "position_ids")
FIELDS = ("input_ids", "labels", "attention_mask", "segment_ids", "position_ids")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """A rank's rows of one step, all int32 [A, B, T].

    labels: shifted, -100 where ignored; segment_ids: from 1 in each row, 0 is padding;
    position_ids: from 0 in each segment.
    """

    step: int
    input_ids: np.ndarray
    labels: np.ndarray
    segment_ids: np.ndarray
    position_ids: np.ndarray

    @property
    def attention_mask(self) -> np.ndarray:
        """bool: where there is a token."""
        return self.segment_ids > 0

    @never_raising
    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.input_ids.shape[:-1]))
        padding = int((self.segment_ids == 0).sum())
        trained = int((self.labels >= 0).sum())
        facts = [f"step {self.step:,}", f"{shape} rows of {self.input_ids.shape[-1]:,} tokens"]
        masked = self.input_ids.size - padding - trained
        counts = [f"{trained:,} trained", f"{masked:,} masked", f"{padding:,} padding"]
        return named("Batch", [*facts, *counts])

    def on_device(self) -> Batch:
        """Return the batch with JAX arrays on the default device, as data.device_put asks for."""
        return replace(self, **_put({name: getattr(self, name) for name in STORED}))

    def to_jax(self) -> dict[str, Any]:
        """Return the arrays as JAX arrays on the default device, by name."""
        return _put({name: getattr(self, name) for name in FIELDS})

    def to_torch(self) -> dict[str, Any]:
        """Return the arrays as torch tensors, by name; ids and labels int64, as torch asks."""
        try:
            import torch
        except ImportError:
            raise MissingExtraError("torch", extra="torch", purpose="a batch for torch") from None
        wide = {name: getattr(self, name).astype(np.int64) for name in ("input_ids", "labels")}
        return {
            name: torch.from_numpy(wide[name] if name in wide else getattr(self, name))
            for name in FIELDS
        }


def _put(arrays: dict[str, Any]) -> dict[str, Any]:
    try:
        import jax
    except ImportError:
        raise MissingExtraError("jax", extra="jax", purpose="a batch for JAX") from None
    put: dict[str, Any] = jax.device_put(arrays)
    return put
