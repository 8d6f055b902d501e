"""Tokenizer objects of Hugging Face: `tokenizers.Tokenizer`, and fast ones of `transformers`.

Both hold a `tokenizer.json` in memory. It is taken as the object has it now: tokens that were
added since it was loaded are there, and the end token is the object's `eos_token`.

The fingerprint is that of the file which the object would save: the one it was loaded from, if
that was written by this version of the library. Truncation, padding and a post-processor that
adds nothing, which come and go while an object is used, are no part of it (hf_identity.py). A
`transformers` tokenizer also knows where it came from: where the files there still define the
same ids, the same control tokens and the same decoding, its fingerprint is theirs, whatever
version wrote them. The begin and end tokens that a post-processor adds are left out of that
comparison, since content is encoded without them.
"""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

from tokenreel.errors import ConfigError, TokenreelError
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.hf_content import control_tokens
from tokenreel.text.tokenizers.hf_declared import Parsed as Json
from tokenreel.text.tokenizers.hf_declared import with_end_of_object
from tokenreel.text.tokenizers.hf_identity import identity_of
from tokenreel.text.tokenizers.huggingface import Origin, Parsed, define, folder_origin, parse
from tokenreel.text.tokenizers.tokenizer import Definition


def define_backend(tokenizer: Any) -> Definition:
    """Define a tokenizer by a `tokenizers.Tokenizer`."""
    return _define_saved(_saved(tokenizer), where="tokenizers.Tokenizer")


def define_transformers(tokenizer: Any) -> Definition:
    """Define a tokenizer by a fast tokenizer of transformers; a slow one is refused."""
    kind = type(tokenizer).__name__
    if not getattr(tokenizer, "is_fast", False) or not hasattr(tokenizer, "backend_tokenizer"):
        raise ConfigError(
            f"a {kind} is a slow tokenizer of transformers: its ids come from Python code, which "
            "cannot be kept apart from control tokens",
            expected="a fast tokenizer (is_fast), or a path",
            remedy="load it with AutoTokenizer.from_pretrained(…, use_fast=True), or give the path "
            "of its tokenizer.json, .model or tekken.json",
        )
    data, end = _saved(tokenizer.backend_tokenizer), _end_token(tokenizer)
    parsed = parse(_origin(data, end=end, where=kind))
    fingerprint = _fingerprint_of_files(tokenizer, parsed)
    return _define(parsed, data, where=kind, end=end, fingerprint=fingerprint)


def _define_saved(
    data: bytes, *, where: str, end: str | None = None, fingerprint: str | None = None
) -> Definition:
    parsed = parse(_origin(data, end=end, where=where))
    return _define(parsed, data, where=where, end=end, fingerprint=fingerprint)


def _define(
    parsed: Parsed, data: bytes, *, where: str, end: str | None, fingerprint: str | None
) -> Definition:
    """Define a tokenizer; `fingerprint` is that of the files, None for the object's own."""
    if fingerprint is not None:
        parsed = dataclasses.replace(parsed, fingerprint=fingerprint)
    again = partial(_define_saved, data, where=where, end=end, fingerprint=fingerprint)
    return define(parsed, where=where, reopen=again)


def _origin(data: bytes, *, end: str | None, where: str) -> Origin:
    def declare(definition: Json) -> tuple[Json, DeclaredEnd | None]:
        return (definition, None) if end is None else with_end_of_object(definition, token=end)

    return Origin(
        data=data,
        where=where,
        kind="huggingface",
        files={"tokenizer.json": identity_of(data)},
        declare=declare,
    )


def _saved(backend: Any) -> bytes:
    """Return the file that the library would save."""
    try:
        return backend.to_str(pretty=True).encode()
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(
            f"this {type(backend).__name__} can neither be saved nor sent to workers: {error}",
            remedy="leave out steps that are written in Python",
        ) from None


def _end_token(tokenizer: Any) -> str | None:
    end = tokenizer.special_tokens_map.get("eos_token")
    return None if end is None else str(end)


def _fingerprint_of_files(tokenizer: Any, parsed: Parsed) -> str | None:
    """Return the fingerprint of the files it was loaded from, where these mean the same."""
    name = getattr(tokenizer, "name_or_path", None)
    folder = _folder(name) if isinstance(name, str) and name else None
    if folder is None:
        return None
    try:
        there = parse(folder_origin(folder))
    except (TokenreelError, OSError):  # it was loaded in another way than ours
        return None
    # Files have been written by many versions of the library; this one writes both alike.
    definition = json.loads(there.library.to_str())
    same = _meaning(definition) == _meaning(parsed.definition)
    return there.fingerprint if same else None


def _folder(name: str) -> Path | None:
    if Path(name).is_dir():
        return Path(name)
    if Path(name).is_file():
        return Path(name).parent
    import huggingface_hub  # there, since transformers is

    try:
        found = huggingface_hub.try_to_load_from_cache(name, "tokenizer.json")
    except ValueError:  # no name of a repository
        return None
    return Path(found).parent if isinstance(found, str) else None


def _meaning(definition: Json) -> tuple[object, ...]:
    """Return all that ids and text depend on."""
    controls = control_tokens(definition)
    words = [t for t in definition.get("added_tokens") or () if t["content"] not in controls]
    steps = [definition.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")]
    return controls, words, steps, {**definition["model"], "dropout": None}
