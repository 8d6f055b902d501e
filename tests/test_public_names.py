"""The public API: every name is there, and is loaded only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tokenreel


@pytest.mark.parametrize("name", tokenreel.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(tokenreel, name)
    assert isinstance(value, str) or value.__name__ == name
    assert name in dir(tokenreel)


def test_a_name_that_is_not_there_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="module 'tokenreel' has no attribute 'Fed'"):
        tokenreel.Fed  # noqa: B018


def test_importing_tokenreel_loads_no_room_and_not_even_numpy() -> None:
    program = "import sys, tokenreel; print(*(name for name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = run.stdout.split()
    assert "tokenreel" in loaded
    assert [name for name in loaded if name.startswith("tokenreel.")] == []
    assert "numpy" not in loaded
