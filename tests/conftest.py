"""What tests of several rooms share, made once."""

from __future__ import annotations

from tests.adapters.ranks import ranks

__all__ = ["ranks"]
