"""Open the files of a cache: mapped, checked, never loaded; a face of `tokenreel.dropin.caches`."""

from __future__ import annotations

from pathlib import Path

from tokenreel.dropin.caches import cache_parts
from tokenreel.store.split import Split


def open_shards(shards_dir: str) -> Split:
    """Return the shards of a folder: of a cache, of a native store, or bare `shard_*.bin`."""
    return cache_parts.open_shards(Path(shards_dir))


def open_examples(tokens_path: str, idx_path: str) -> Split:
    """Return the examples of a fine-tuning cache as the documents of a split, checked."""
    return cache_parts.open_examples(Path(tokens_path), Path(idx_path))
