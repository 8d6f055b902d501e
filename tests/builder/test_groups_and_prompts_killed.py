"""Builds of pairs and of prompts: killed at random moments, or made by Ray, the same bytes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import tree, write_jsonl
from tests.builder.test_pairs import preferences

from tokenreel.builder.build import build
from tokenreel.inspect.verify import verify_store

pytestmark = pytest.mark.soak

PROMPTS = [
    {"prompt": f"{n}+{n}=", "z": 2**70 + n, "a": {"y": [n, None], "b": 0.5}} for n in range(3000)
]
SETTINGS: dict[str, Any] = {
    "tokenizer": "byte",
    "val_frac": 0.2,
    "shuffle": "global",
    "deduplicate": True,
    "chunk_bytes": 4000,
    "shard_size": 8000,
    "progress": False,
}
PROGRAM = """
import json, sys
from tokenreel import build
build([sys.argv[1]], out=sys.argv[2], workers=2, **json.loads(sys.argv[3]))
"""


def settings(kind: str) -> dict[str, Any]:
    return {**SETTINGS, kind: True}


CASES = {"pairs": preferences(3000), "prompts": PROMPTS}


@pytest.fixture(params=CASES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def source(kind: str, tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / f"{kind}.jsonl", CASES[kind])


def test_a_build_killed_again_and_again_ends_with_the_bytes_of_one_that_was_not(
    kind: str, source: Path, tmp_path: Path
) -> None:
    build([source], out=tmp_path / "whole", **settings(kind))
    out, chance, num_killed = tmp_path / "s", random.Random(5), 0
    words = [sys.executable, "-c", PROGRAM, str(source), str(out)]
    words.append(json.dumps(settings(kind)))
    for attempt in range(40):
        process = subprocess.Popen(words, start_new_session=True)
        if attempt < 30:
            time.sleep(chance.uniform(0.3, 1.5))
            process.send_signal(signal.SIGKILL)
        num_killed += process.wait() == -signal.SIGKILL
        if (out / "manifest.json").exists():
            break
    assert num_killed >= 1
    assert tree(out) == tree(tmp_path / "whole")
    assert verify_store(out).ok


def test_ray_writes_the_bytes_of_one_process(kind: str, source: Path, tmp_path: Path) -> None:
    build([source], out=tmp_path / "one", **settings(kind))
    build([source], out=tmp_path / "ray", engine="ray", workers=2, **settings(kind))
    assert tree(tmp_path / "ray") == tree(tmp_path / "one")
