"""The code in README.md runs and prints what it says."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_every_python_block_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stores").mkdir()
    failed, attempted = doctest.testfile(str(README), module_relative=False)
    assert failed == 0
    assert attempted >= 10
