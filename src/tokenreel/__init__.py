"""Immutable token stores, and batches that are a pure function of (store, recipe, step).

What reads text is loaded when it is first used, so importing tokenreel stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tokenreel.errors import TokenreelError
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.store.batch import Documents
from tokenreel.store.convert import convert
from tokenreel.store.door import open_store
from tokenreel.store.split import Document, Split
from tokenreel.store.store import Store
from tokenreel.store.writer import StoreWriter
from tokenreel.text.provenance import Provenance

if TYPE_CHECKING:
    from tokenreel.builder.build import build
    from tokenreel.text.tokenizers import load_tokenizer

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Document",
    "Documents",
    "Feed",
    "Phase",
    "Provenance",
    "Recipe",
    "Source",
    "Split",
    "Store",
    "StoreWriter",
    "TokenreelError",
    "__version__",
    "build",
    "convert",
    "load_tokenizer",
    "open_store",
]

_LATER = {"build": "tokenreel.builder.build", "load_tokenizer": "tokenreel.text.tokenizers"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
