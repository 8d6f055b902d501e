"""The example trains, is killed, resumes, and gives the losses it would have given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest
from tests.stream.making import texts_of, write_texts

EXAMPLE = Path(__file__).parents[2] / "examples/stream_jax.py"
EVERY = 8


def start(folder: Path, text: Path, *, steps: int) -> subprocess.Popen[str]:
    # What one process has compiled the next need not compile again.
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(text.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    words = ["--folder", str(folder), "--text", str(text)]
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), *words, "--steps", str(steps), "--every", str(EVERY)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **kept, "JAX_PLATFORMS": "cpu"},
    )


def losses_of(lines: Iterable[str]) -> dict[int, float]:
    told = [json.loads(line) for line in lines]
    return {line["step"]: line["loss"] for line in told}


@pytest.mark.soak
def test_killed_and_resumed_it_shows_the_same_losses(tmp_path: Path) -> None:
    """What the killed run showed after its last checkpoint is what the resumed one shows."""
    text = write_texts(tmp_path / "a.jsonl", texts_of(300, longest=400))
    killed = start(tmp_path / "run", text, steps=2 * EVERY - 1)
    assert killed.stdout is not None
    before = losses_of(islice(killed.stdout, EVERY + 5))
    killed.kill()
    killed.communicate()
    resumed = start(tmp_path / "run", text, steps=2 * EVERY + 5)
    output, _ = resumed.communicate(timeout=120)
    assert resumed.returncode == 0
    after = losses_of(output.splitlines())
    assert sorted(after) == list(range(EVERY, 2 * EVERY + 5))
    again = {step: loss for step, loss in before.items() if step >= EVERY}
    assert len(again) == 5 and again.items() <= after.items()
    assert len(set(again.values())) == 5
    assert after[2 * EVERY] < before[0]
