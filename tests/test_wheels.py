"""Wheels: one with native kernels for every Python from 3.11 on, one without any."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NEEDED = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
USE = """
import sys, tokenreel
from tokenreel import native
with tokenreel.StoreWriter(sys.argv[1], vocab_size=100) as writer:
    writer.add(range(50))
recipe = tokenreel.Recipe(seq_len=8, global_batch_size=2,
                          sources=[tokenreel.Source(name="a", path=sys.argv[1])])
batch = tokenreel.Feed(recipe).batch(3)
print(tokenreel.__file__, native.extension() is not None, batch.input_ids.tolist())
"""


def build_wheel(folder: Path, *, native: str) -> Path:
    """Build a wheel from a copy of the sources, without fetching anything."""
    sources = folder / "sources"
    ignore = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", sources / "src", ignore=ignore)
    for name in NEEDED:
        shutil.copy(ROOT / name, sources)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, sources],
        check=True,
        capture_output=True,
        env={**os.environ, "TOKENREEL_BUILD_NATIVE": native},
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def use_wheel(wheel: Path, folder: Path) -> list[str]:
    """Import tokenreel from the wheel alone, make a batch, return what was said."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "site")
    run = subprocess.run(
        [sys.executable, "-c", USE, str(folder / "store")],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "site")},
    )
    return run.stdout.strip().split(" ", 2)


pytestmark = pytest.mark.soak  # two builds from scratch, one with a compiler


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path, list[str]]]:
    said = {}
    for native in ("require", "0"):
        folder = tmp_path_factory.mktemp("wheel")
        wheel = build_wheel(folder, native=native)
        said[native] = (wheel, folder, use_wheel(wheel, folder))
    return said


def test_one_wheel_has_kernels_and_the_other_gives_the_same_batches_without(
    spoken: dict[str, tuple[Path, Path, list[str]]],
) -> None:
    wheel, folder, (place, has_kernels, batch) = spoken["require"]
    assert "-cp311-abi3-" in wheel.name
    assert Path(place).is_relative_to(folder) and has_kernels == "True"
    wheel, folder, (place, has_kernels, same) = spoken["0"]
    assert wheel.name.endswith("-py3-none-any.whl")
    assert Path(place).is_relative_to(folder) and has_kernels == "False"
    assert same == batch


def test_a_wheel_says_that_it_is_typed(spoken: dict[str, tuple[Path, Path, list[str]]]) -> None:
    for wheel, _, _ in spoken.values():
        names = zipfile.ZipFile(wheel).namelist()
        assert {"tokenreel/py.typed", "niels_gpt/py.typed"} <= set(names)
