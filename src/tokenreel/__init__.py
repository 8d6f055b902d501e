"""Immutable token stores, and batches that are a pure function of (store, recipe, step)."""

from tokenreel.errors import TokenreelError
from tokenreel.store.batch import Documents
from tokenreel.store.door import open_store
from tokenreel.store.split import Document, Split
from tokenreel.store.store import Store
from tokenreel.store.writer import StoreWriter
from tokenreel.text.provenance import Provenance

__version__ = "0.1.0"

__all__ = [
    "Document",
    "Documents",
    "Provenance",
    "Split",
    "Store",
    "StoreWriter",
    "TokenreelError",
    "__version__",
    "open_store",
]
