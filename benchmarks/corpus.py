"""The demo's corpus, held in memory, and a tokenizer trained on it."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from tokenreel.demo.corpus import Messages, docstring_chats, source_files
from tokenreel.text.tokenizers.train import train_tokenizer


def documents(limit_bytes: int) -> list[str]:
    """Return sources of the standard library, up to so many characters."""
    texts: list[str] = []
    size = 0
    for _, text in source_files():
        if size >= limit_bytes:
            break
        texts.append(text)
        size += len(text)
    return texts


def chats(limit: int) -> list[Messages]:
    """Return chats made of docstrings."""
    return list(islice(docstring_chats(), limit))


def write_jsonl(path: Path, texts: list[str]) -> Path:
    """Write documents as JSONL."""
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    return path


def train_bpe(folder: Path, *, vocab_size: int = 16_000) -> Path:
    """Train a byte-level BPE on the sources and return its tokenizer.json."""
    text = folder / "training.txt"
    text.write_text("\n".join(documents(8_000_000)), encoding="utf-8")
    out = folder / "tokenizer.json"
    train_tokenizer([text], out, kind="bpe", vocab_size=vocab_size)
    return out
