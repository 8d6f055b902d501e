"""A program ends with an iterator in a global: nothing is printed but what the user raised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.feed.making import write_store

RECIPE = """
import sys, tokenreel
source = tokenreel.Source(name="a", path=sys.argv[1], rows="packed")
recipe = tokenreel.Recipe(seq_len=64, global_batch_size=8, sources=[source])
"""
# The names of a module that was imported early are taken away late, after those of others.
HELD_LATE = """
import os
os.held = tokenreel.Feed(recipe).stream(prefetch=4)
next(os.held)
"""
ADAPTERS = """
import tokenreel.jax, tokenreel.torch
from tokenreel.stream import StreamPipeline
batches = iter(tokenreel.torch.FeedLoader(recipe))
arrays = iter(tokenreel.jax.FeedLoader(recipe))
pipeline = StreamPipeline({
    "data": {"backend": "local_text", "local_text": "so it goes. " * 999,
             "tokenizer": {"kind": "byte", "add_eos": True}},
    "train": {"seq_len": 16, "batch_size": 2}})
next(batches), next(arrays), next(pipeline)
"""


def run(folder: Path, program: str) -> tuple[int, str]:
    write_store(folder / "s", [90, 70, 40] * 40)
    words = [sys.executable, "-c", RECIPE + program, str(folder / "s")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    ("ending", "code"), [("", 0), ("sys.exit(3)", 3), ("raise RuntimeError('mine')", 1)]
)
def test_a_stream_in_a_global_ends_in_silence(tmp_path: Path, ending: str, code: int) -> None:
    returned, complaints = run(tmp_path, HELD_LATE + ending)
    assert returned == code
    assert "Exception ignored" not in complaints
    assert complaints.count("Traceback") == ("raise" in ending)
    assert complaints == "" or complaints.endswith("RuntimeError: mine\n")


def test_loaders_and_pipelines_in_globals_end_in_silence(tmp_path: Path) -> None:
    returned, complaints = run(tmp_path, ADAPTERS + "sys.exit(3)")
    assert returned == 3
    assert complaints == ""
