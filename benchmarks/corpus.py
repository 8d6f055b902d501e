"""Text of this machine, each file once, and a tokenizer trained on some of it.

Real text keeps bringing words that were not there before, and a tokenizer's time goes into
those: text that is repeated shows engines at several times their speed. The texts here are
sources and documentation: of the standard library, of installed packages, and the manuals of
the system where there are any. Files of equal content count once, whatever their names; the
order is that of their hashes, so that every kind of text comes from the beginning on. Where
there is less than was asked for, there is less: `distinct_texts` repeats nothing.
"""

from __future__ import annotations

import gzip
import json
import os
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import xxhash

from tokenreel.demo.corpus import Messages, docstring_chats, source_files
from tokenreel.text.tokenizers.train import train_tokenizer

SYSTEM = ("/usr/share/doc", "/usr/share/man", "/usr/share/perl", "/usr/lib/python3", "/usr/include")
SUFFIXES = frozenset({".py", ".pyi", ".rst", ".md", ".txt", ".h", ".html", ".pm", ".pod", ".gz"})
MIN_BYTES = 64
MAX_BYTES = 1_000_000  # larger files are tables more often than text
FIRST_BYTES = 10_000_000  # where words are new to an engine that has just been loaded


def distinct_texts(limit_bytes: int) -> Iterator[str]:
    """Yield texts, no two of them alike, until they have so many bytes of UTF-8 or are all out."""
    size = 0
    for path in _distinct_files():
        if size >= limit_bytes:
            return
        if (text := _read_text(path)) is not None:
            size += len(text.encode())
            yield text


@cache
def _distinct_files() -> tuple[Path, ...]:
    """Return one path per content, in the order of their hashes."""
    found: dict[bytes, Path] = {}
    for path in _files():
        try:
            found.setdefault(xxhash.xxh3_128_digest(path.read_bytes()), path)
        except OSError:
            continue
    return tuple(found[digest] for digest in sorted(found))


def _files() -> Iterator[Path]:
    paths = sysconfig.get_paths()
    for root in (paths["stdlib"], paths["purelib"], *SYSTEM):
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                if path.suffix in SUFFIXES and not path.is_symlink():
                    yield path


def _read_text(path: Path) -> str | None:
    """Return what a file holds if it is text of a usual size."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError):
        return None
    is_usual = MIN_BYTES <= len(text) <= MAX_BYTES and "\0" not in text and text[0] != "\ufeff"
    return text if is_usual else None


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


def write_jsonl(path: Path, texts: Iterable[str]) -> Path:
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
    train_tokenizer([text], out=out, vocab_size=vocab_size)
    return out
