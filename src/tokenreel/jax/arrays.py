"""Batches as dicts of sharded jax.Array.

Token ids are cast on the host to what JAX would make of int64 anyway. Fields that are the
same for all rows are put on the devices once and handed out again; a step that donates
them gets new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.fields import FIELDS, known_fields

ArrayBatch = dict[str, jax.Array]
Place = Callable[[np.ndarray], jax.Array]


class Arrays:
    """Makes arrays on devices of batches on the host."""

    def __init__(self, place: Place, fields: Sequence[str] = FIELDS) -> None:
        self.fields = known_fields(fields)
        self._place = place
        self._common: dict[str, tuple[np.ndarray, jax.Array]] = {}

    def __call__(self, batch: Batch) -> ArrayBatch:
        """Return the fields of a batch on the devices; copies may still be under way."""
        return {name: self._field(batch, name) for name in self.fields}

    def _field(self, batch: Batch, name: str) -> jax.Array:
        array = getattr(batch, name)
        if name not in batch.shared:
            return self._place(_host(array))
        kept = self._common.get(name)
        if kept is None or kept[0] is not array or kept[1].is_deleted():
            kept = self._common[name] = (array, self._place(_host(array)))
        return kept[1]


def _host(array: np.ndarray) -> np.ndarray:
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def check_ids_fit(feed: Feed) -> None:
    """Raise ConfigError if token ids may not fit into what JAX makes of int64."""
    most = np.iinfo(jax.dtypes.canonicalize_dtype(np.int64)).max
    for store in feed.stores:
        if store.vocab_size is not None and store.vocab_size - 1 > most:
            raise ConfigError(
                "token ids do not fit into int32",
                where=store.path,
                expected=f"at most {most:,}",
                actual=f"{store.vocab_size - 1:,}",
                remedy='switch 64-bit types on: jax.config.update("jax_enable_x64", True)',
            )
