"""Real text that every machine has: the standard library's sources and its docstrings."""

from __future__ import annotations

import ast
import json
import sysconfig
from pathlib import Path

from tokenreel.text.tokenizers.train import train_tokenizer


def documents(limit_bytes: int) -> list[str]:
    """Return sources of the standard library, up to so many characters; repeated if too few."""
    files = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    texts: list[str] = []
    size = 0
    for path in files:
        if "site-packages" in path.parts or size >= limit_bytes:
            continue
        text = path.read_text("utf-8-sig", errors="ignore").replace("\0", "")
        texts.append(text)
        size += len(text)
    return texts


def chats(limit: int) -> list[list[dict[str, str]]]:
    """Return chats made of docstrings: what does it do? and the answer."""
    found: list[list[dict[str, str]]] = []
    for text in documents(1 << 62):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
                found.append(
                    [
                        {"role": "user", "content": f"What does {node.name} do?"},
                        {"role": "assistant", "content": ast.get_docstring(node) or ""},
                    ]
                )
        if len(found) >= limit:
            break
    return found[:limit]


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
