"""Corpora for builds, and what is left on disk of one."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

REPORTS = ("report.html", "report.json")


@contextmanager
def second_thread() -> Iterator[None]:
    """Have a thread beside this one: workers are forked by a process of one thread only."""
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def write_jsonl(path: Path, rows: Iterable[Any]) -> Path:
    """Write rows as JSONL."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def documents(count: int, *, seed: int = 1) -> list[dict[str, Any]]:
    """Make documents of words: some empty, some copies of earlier ones, some with ids."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        text = " ".join(chance.choices(["reel", "wörd", "日本", "a", "\n"], k=chance.randrange(60)))
        row = {"text": text}
        if number % 5 == 4:
            row = {"text": rows[chance.randrange(number)]["text"]}
        if number % 3 == 0:
            row["id"] = f"doc-{number}"
        rows.append(row)
    return rows


def chats(count: int, *, seed: int = 2) -> list[dict[str, Any]]:
    """Make chats of one to three exchanges."""
    chance = random.Random(seed)
    words = ["hello", "<|ngpt_eot|>", "né", "why"]
    return [
        {
            "messages": [
                {"role": role, "content": " ".join(chance.choices(words, k=chance.randrange(1, 9)))}
                for _ in range(chance.randrange(1, 4))
                for role in ("user", "assistant")
            ]
        }
        for _ in range(count)
    ]


def tree(path: Path) -> dict[str, bytes]:
    """Return every file of a store, byte by byte, without the reports beside it, whole or not."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name.removesuffix(".tmp") not in REPORTS
    }


def places(path: Path, pattern: str) -> dict[str, tuple[int, int]]:
    """Return inode and time of the files that match: what was not written again."""
    found, files = {}, list[Path]()
    with suppress(FileNotFoundError):  # a build that ends removes the folder that is looked through
        files = list(path.glob(pattern))
    for file in files:
        with suppress(FileNotFoundError):  # a build that runs removes its chunks
            status = file.stat()
            found[str(file.relative_to(path))] = (status.st_ino, status.st_mtime_ns)
    return found
