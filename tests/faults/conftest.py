"""What several fault tests need."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of fsyncs cost nothing there."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="tokenreel-", dir=shared))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
