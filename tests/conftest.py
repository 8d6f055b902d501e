"""What tests of several rooms share, made once."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from tests.adapters.ranks import ranks

__all__ = ["ranks"]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave what tests only import alone: looked through for doctests, it would be imported."""
    is_helper = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if is_helper else None


def pytest_collection_finish() -> None:
    """Keep modules and tests out of every later garbage collection: they stay to the end."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int | None:
    """Have a worker more than cores: many tests wait, for processes, servers and disks."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 1
