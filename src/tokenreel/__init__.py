"""Immutable token stores, and batches that are a pure function of (store, recipe, step)."""

from tokenreel.errors import TokenreelError

__version__ = "0.1.0"

__all__ = ["TokenreelError", "__version__"]
