"""Real text that every machine has: the standard library's sources and its docstrings."""

from __future__ import annotations

import ast
import json
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

Messages = list[dict[str, str]]
MAX_ANSWER = 300  # characters: so that a whole chat fits into a short row


def source_files() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the standard library's sources, in order of their names."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if not {"site-packages", "dist-packages"} & set(path.parts) and (text := _read(path)):
            yield path.relative_to(library).as_posix(), text


def _read(path: Path) -> str:
    return path.read_text("utf-8-sig", errors="ignore").replace("\0", "")


def docstring_chats() -> Iterator[Messages]:
    """Yield chats made of short docstrings: what does it do? and the answer."""
    for name, text in source_files():
        try:
            with warnings.catch_warnings(action="ignore"):  # of odd escapes in old tests
                tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                answer = ast.get_docstring(node)
                if answer and len(answer) <= MAX_ANSWER:
                    yield [
                        {"role": "user", "content": f"What does {node.name} of {module} do?"},
                        {"role": "assistant", "content": answer},
                    ]


def write_documents(path: Path, *, limit_bytes: int) -> Path:
    """Write sources as JSONL, up to so many characters."""
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for name, text in source_files():
            file.write(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n")
            size += len(text)
            if size >= limit_bytes:
                break
    return path


def write_chats(path: Path, *, limit: int) -> Path:
    """Write docstring chats as JSONL."""
    with path.open("w", encoding="utf-8") as file:
        for number, messages in enumerate(docstring_chats()):
            if number == limit:
                break
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
    return path
