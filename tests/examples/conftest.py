"""One small corpus for all examples, and a way to run them as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.forked import Forks

import tokenreel

EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}  # tiny models gain nothing from threads


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with docs.jsonl and chats.jsonl."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = [f"Document {n} counts: " + " ".join(map(str, range(n, n + 40))) for n in range(200)]
    lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n")
    chats = [
        {
            "messages": [
                {"role": "user", "content": f"What comes after {n}?"},
                {"role": "assistant", "content": f"After {n} comes {n + 1}."},
            ]
        }
        for n in range(300)
    ]
    (folder / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)) + "\n")
    return folder


@pytest.fixture(scope="session")
def store(corpus: Path) -> Path:
    """Build the documents, as bytes."""
    tokenreel.build(corpus / "docs.jsonl", out=corpus / "store", tokenizer="byte")
    return corpus / "store"


def start(*words: object, launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start an example, in a process group of its own."""
    name, *rest = map(str, words)
    return subprocess.Popen(
        [sys.executable, *launcher, str(EXAMPLES / name), *rest],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for an example and return what it printed; it must have gone well."""
    printed, complaints = process.communicate(timeout=120)
    assert process.returncode == 0, complaints[-3000:]
    return printed


def run(*words: object) -> str:
    """Run an example and return what it printed."""
    return finish(start(*words))


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A process that has torch: importing it takes longer than most examples do."""
    # Every optimizer imports the second one, which takes a second.
    modules = ("torch.distributed", "torch._dynamo", "torch.nn.attention.flex_attention")
    folder = tmp_path_factory.mktemp("printed")
    with Forks(*modules, "tokenreel.torch", folder=folder, environment=ENVIRONMENT) as made:
        yield made
