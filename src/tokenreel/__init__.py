"""Immutable token stores, and batches that are a pure function of (store, recipe, step).

Every name is loaded when it is first used: importing tokenreel costs next to nothing, and
a worker of a build loads no feed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenreel.builder.build import build
    from tokenreel.errors import TokenreelError
    from tokenreel.feed.batch import Batch
    from tokenreel.feed.feed import Feed
    from tokenreel.feed.recipe import Phase, Recipe, Source
    from tokenreel.inspect.verify import verify
    from tokenreel.layouts.convert import convert
    from tokenreel.layouts.open_store import open_store
    from tokenreel.store.document_batch import DocumentBatch
    from tokenreel.store.split import Document, Split
    from tokenreel.store.store import Store
    from tokenreel.store.writer import StoreWriter
    from tokenreel.text.chats.templates import load_template
    from tokenreel.text.provenance import Provenance
    from tokenreel.text.tokenizers import load_tokenizer
    from tokenreel.text.tokenizers.train import train_tokenizer

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Document",
    "DocumentBatch",
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
    "load_template",
    "load_tokenizer",
    "open_store",
    "train_tokenizer",
    "verify",
]

_PLACES = {
    "Batch": "feed.batch",
    "Document": "store.split",
    "DocumentBatch": "store.document_batch",
    "Feed": "feed.feed",
    "Phase": "feed.recipe",
    "Provenance": "text.provenance",
    "Recipe": "feed.recipe",
    "Source": "feed.recipe",
    "Split": "store.split",
    "Store": "store.store",
    "StoreWriter": "store.writer",
    "TokenreelError": "errors",
    "build": "builder.build",
    "convert": "layouts.convert",
    "load_template": "text.chats.templates",
    "load_tokenizer": "text.tokenizers",
    "open_store": "layouts.open_store",
    "train_tokenizer": "text.tokenizers.train",
    "verify": "inspect.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tokenreel.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
