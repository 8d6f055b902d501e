"""Stores and recipes to look at: texts, chats, pairs, prompts, and files of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.view.looking import CHATS, PAIRS, PROMPTS, TEXTS, write_recipe

import tokenreel


def write_lines(path: Path, records: list[dict]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stores: texts of several shards, chats, pairs, prompts; a flat.bin of others."""
    folder = tmp_path_factory.mktemp("stores")
    texts = write_lines(
        folder / "texts.jsonl", [{"id": f"t{n}", "text": text} for n, text in enumerate(TEXTS)]
    )
    chats = write_lines(folder / "chats.jsonl", CHATS)
    pairs = write_lines(folder / "pairs.jsonl", PAIRS)
    prompts = write_lines(folder / "prompts.jsonl", PROMPTS)
    common: dict[str, Any] = {"tokenizer": "byte", "workers": 1}
    tokenreel.build(texts, out=folder / "texts", shard_size=600, id_key="id", **common)
    tokenreel.build(chats, out=folder / "chats", chat=True, **common)
    tokenreel.build(pairs, out=folder / "pairs", pairs=True, **common)
    tokenreel.build(prompts, out=folder / "prompts", prompts=True, **common)
    bare = np.frombuffer("".join(TEXTS).encode(), np.uint8).astype(np.uint16)
    (folder / "flat.bin").write_bytes(bare.tobytes())
    with tokenreel.StoreWriter(folder / "nowhere", vocab_size=512) as writer:
        for text in TEXTS:
            writer.add(list(text.encode()))
    return folder


@pytest.fixture(scope="session")
def recipe(stores: Path) -> Path:
    """A recipe of texts and chats, with a phase, 40 steps."""
    return write_recipe(
        stores / "recipe.toml",
        "seq_len = 64\nglobal_batch_size = 6\nseed = 7\nsteps = 40\n",
        {"name": "texts", "path": "texts", "rows": "document_windows", "weight": 0.8},
        {"name": "chats", "path": "chats", "rows": "packed", "weight": 0.2},
        tail="[[phases]]\nstart_step = 20\nramp_steps = 10\n"
        "weights = { texts = 0.5, chats = 0.5 }\n",
    )
