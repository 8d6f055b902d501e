"""What a foreign folder says about itself: metadata.yaml as tatm writes it, or meta.json.

Only a few keys are understood (dtype, vocabulary, tokenizer, file names); all of
the content is handed on as it is. YAML is read by its safe loader, without
aliases; nothing here can run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tokenreel.canonical import parse_strict, read_limited
from tokenreel.config.yaml import parse_yaml
from tokenreel.errors import FormatError
from tokenreel.store.manifest import MAX_COUNT
from tokenreel.store.open_options import parse_dtype

# In the order they are looked for; the first that exists is believed.
YAML_NAMES = ("metadata.yaml", "metadata.yml")
JSON_NAMES = ("metadata.json", "meta.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The facts of a metadata file; without a file, nothing is known."""

    path: Path | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    dtype: np.dtype | None = None
    vocab_size: int | None = None
    tokenizer: Mapping[str, Any] | None = None
    file_prefix: str | None = None
    file_extension: str | None = None

    def count(self, name: str) -> int | None:
        """Return a total such as train_tokens, at the top level or under "totals"."""
        totals = self.content.get("totals")
        nested = totals.get(name) if isinstance(totals, dict) else None
        return _count(self.content.get(name, nested), name, self.path)


def read_metadata(folder: Path) -> Metadata:
    """Read the metadata file of a folder, if there is one."""
    for name in (*YAML_NAMES, *JSON_NAMES):
        path = folder / name
        if path.exists():
            data = read_limited(path)
            parse = parse_yaml if name in YAML_NAMES else _parse_json
            return _understand(path, parse(data, path))
    return Metadata()


def _understand(path: Path, content: dict[str, Any]) -> Metadata:
    info = content.get("tokenized_info")
    if info is None:
        info = content
    if not isinstance(info, dict):
        raise FormatError("tokenized_info is not a mapping", where=path, actual=repr(info)[:80])
    dtype = info.get("dtype", info.get("token_dtype"))
    vocab_size = _count(info.get("vocab_size"), "vocab_size", path)
    if vocab_size == 0:
        raise FormatError("wrong value of vocab_size", where=path, expected=">= 1", actual=0)
    prefix = _text(info, "file_prefix", path)
    extension = _text(info, "file_extension", path)
    return Metadata(
        path=path,
        content=content,
        dtype=None if dtype is None else parse_dtype(dtype, where=path),
        vocab_size=vocab_size,
        tokenizer=_tokenizer(info),
        # tatm writes the prefix with the folder it was made in; the folder may have moved since.
        file_prefix=None if prefix is None else PurePosixPath(prefix).name,
        file_extension=None if extension is None else extension.removeprefix("."),
    )


def _tokenizer(info: Mapping[str, Any]) -> Mapping[str, Any] | None:
    known = {
        "name": info.get("tokenizer"),
        "sha256": info.get("tokenizer_sha256"),
        "special_token_ids": info.get("special_token_ids"),
    }
    return {key: value for key, value in known.items() if value is not None} or None


def _count(value: object, name: str, where: Path | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise FormatError(
            f"wrong value of {name}",
            where=where,
            expected="an integer from 0 to 2**56",
            actual=repr(value)[:80],
            remedy="correct the file",
        )
    return value


def _text(info: Mapping[str, Any], name: str, where: Path) -> str | None:
    value = info.get(name)
    if value is not None and not isinstance(value, str):
        raise FormatError(
            f"wrong value of {name}",
            where=where,
            expected="text",
            actual=repr(value)[:80],
            remedy="correct the file",
        )
    return value


def _parse_json(data: bytes, where: Path) -> dict[str, Any]:
    return parse_strict(data, where=where)
