"""What the tests of the viewer look at: texts that are hard to show, and ways to ask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.view.answers import Answers
from tokenreel.view.guards import App
from tokenreel.view.subject import Subject, open_subjects, subject_of

HOSTILE = '</script><script>alert(1)</script> <img src=x onerror="alert(2)"> \x1b[31m <|im_end|>'
MARKUP = "</script><script>window.ran=1</script><img src=x onerror='window.ran=2'>"
TEXTS = [
    f"Story {n}. " + "Ein kühler Tag — naïve 東京 🙂. " * (n % 7) + (HOSTILE if n == 3 else "")
    for n in range(60)
]
CHATS: list[dict] = [
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"What is {n} + {n}? <|im_end|>"},
            {"role": "assistant", "content": f"It is {2 * n}."},
        ]
    }
    for n in range(40)
]
PAIRS: list[dict] = [
    {"prompt": f"Say {n}.", "chosen": f"{n}!" * (1 + n % 3), "rejected": "No."} for n in range(12)
]
PROMPTS: list[dict] = [
    {"prompt": f"What is {n} times two?" + " Hm." * (n % 4), "answer": str(2 * n)}
    for n in range(12)
]
EVERY_KIND: dict[str, dict[str, Any]] = {
    "windows": {"path": "texts", "rows": "windows"},
    "windows of a foreign file": {"path": "flat.bin", "rows": "windows", "dtype": "uint16"},
    "document windows": {"path": "texts", "rows": "document_windows"},
    "episodes": {"path": "chats", "rows": "episodes"},
    "packed texts": {"path": "texts", "rows": "packed"},
    "packed chats": {"path": "chats", "rows": "packed"},
    "packed, cut": {"path": "chats", "rows": "packed", "truncation": "keep_last"},
    "pairs": {"path": "pairs", "rows": "pairs"},
    "prompts": {"path": "prompts", "rows": "prompts", "repeats": 2},
    "texts from nowhere": {"path": "nowhere", "rows": "packed"},
}


def write_recipe(path: Path, head: str, *sources: dict, tail: str = "") -> Path:
    """Write a recipe file; values of sources are written as TOML writes them."""
    parts = [head]
    for source in sources:
        lines = [
            f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"
            for key, value in source.items()
        ]
        parts.append("\n".join(["[[sources]]", *lines, ""]))
    path.write_text("\n".join([*parts, tail]))
    return path


def feed_of(stores: Path, kind: str, *, seq_len: int = 160, rows: int = 4, **settings: Any) -> Feed:
    """Return a feed of one source of a kind of rows."""
    given = {**EVERY_KIND[kind], "path": str(stores / EVERY_KIND[kind]["path"])}
    source = Source(name="s", **given)
    return Feed(Recipe(seq_len=seq_len, global_batch_size=rows, sources=[source], **settings))


def subject(feed: Feed) -> Subject:
    """Return a feed as something to look at, decoded as bytes."""
    return subject_of(feed, title="s", tokenizer="byte", force_tokenizer=True)


def opened(*paths: Path, **options: Any) -> Answers:
    """Return the answers about what is at some paths."""
    return Answers(open_subjects([str(path) for path in paths], **options))


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """What an app sent."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask_raw(app: App, path: str, query: bytes = b"", *, host: str = "127.0.0.1") -> Raw:
    """Ask an app for a path as it is: clients of HTTP would tidy it up before."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", host.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return Raw(status=sent[0]["status"], headers=headers, body=body)
