"""Open the files of a cache: mapped, checked, never loaded; names of `tokenreel.dropin.caches`."""

from __future__ import annotations

from tokenreel.dropin.caches.cache_parts import open_examples, open_shards

__all__ = ["open_examples", "open_shards"]
