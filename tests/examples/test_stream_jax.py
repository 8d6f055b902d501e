"""The example trains, is killed, resumes, and gives the losses of an unbroken run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.stream.making import texts_of, write_texts

pytest.importorskip("jax")
pytest.importorskip("grain")

EXAMPLE = Path(__file__).parents[2] / "examples/stream_jax.py"
STEPS = 9


def start(folder: Path, text: Path) -> subprocess.Popen[str]:
    # What one process has compiled the next need not compile again.
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(text.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    words = ["--folder", str(folder), "--text", str(text), "--steps", str(STEPS), "--every", "2"]
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **kept, "JAX_PLATFORMS": "cpu"},
    )


def finish(process: subprocess.Popen[str]) -> dict[int, float]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    told = [json.loads(line) for line in output.splitlines()]
    return {line["step"]: line["loss"] for line in told}


def test_killed_and_resumed_it_shows_the_same_losses(tmp_path: Path) -> None:
    text = write_texts(tmp_path / "a.jsonl", texts_of(300, longest=400))
    broken = start(tmp_path / "broken", text)
    assert broken.stdout is not None
    before: dict[int, float] = {}
    while len(before) < 6:
        line = json.loads(broken.stdout.readline())
        before[line["step"]] = line["loss"]
    broken.kill()
    broken.communicate()
    after = finish(start(tmp_path / "broken", text))
    expected = finish(start(tmp_path / "unbroken", text))
    assert sorted(expected) == list(range(STEPS))
    assert 0 < min(after) <= max(before) + 1 and max(after) == STEPS - 1
    assert {**before, **after} == expected
    assert all(before[step] == after[step] for step in before.keys() & after.keys())
    assert expected[STEPS - 1] < expected[0]
