"""Tokenizers in the Hugging Face form: `tokenizer.json`, or a folder of such files.

The reference is the `tokenizers` library, loaded from the definition with its control
tokens hidden (see hf_content.py); without control strings in the text the ids are those
of `tokenizers` called directly. A folder without a `tokenizer.json` is converted by
`transformers`, from local files. Code that comes with a tokenizer is never run.

Cost: the reference takes time in proportion to the text (measured on a busy core, byte-
level BPE, 16 million characters: source code 14 s, equal letters 8 s, blanks 20 s, Chinese
without a break 62 s) and up to 500 bytes of memory per character; documents are cut where
that changes nothing (see cuts.py), which leaves the memory of one piece.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from tokenreel.errors import ConfigError, FormatError, MissingExtraError
from tokenreel.text.tokenizers.bpe_engines import gigatoken_of_json, tiktoken_of_json
from tokenreel.text.tokenizers.cuts import cut, may_be_cut
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.hf_content import (
    content_json,
    continued_definition,
    control_strips,
    control_tokens,
)
from tokenreel.text.tokenizers.hf_declared import read_settings, with_declared_end
from tokenreel.text.tokenizers.hf_identity import identity_of
from tokenreel.text.tokenizers.tokenizer import Definition, fingerprint_of
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded

_BATCH_CHARACTERS = 1 << 22
_CONFIG_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


@dataclass(frozen=True)
class _Reference:
    content: str
    name: str = "reference"

    @cached_property
    def tokenizer(self) -> Any:
        return _tokenizers().Tokenizer.from_str(self.content)

    @cached_property
    def cuts(self) -> bool:
        return may_be_cut(orjson.loads(self.content))

    def encode(self, texts: Sequence[str]) -> Encoded:
        pieces = [cut(text) if self.cuts else [text] for text in texts]
        flat = [piece for parts in pieces for piece in parts]
        ids: list[np.ndarray] = [np.empty(0, np.uint32)]
        lengths: list[int] = []
        for batch in _batches(flat):
            encodings = self.tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            parts = [np.array(encoding.ids, np.uint32) for encoding in encodings]
            lengths += map(len, parts)
            ids.append(np.concatenate(parts))
        ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        pieces_before = np.concatenate(([0], np.cumsum([len(p) for p in pieces], dtype=np.int64)))
        return Encoded(ids=np.concatenate(ids), offsets=ends[pieces_before])

    def locate(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ids of a text, and where each begins and ends, in characters."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        places = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        return np.array(encoding.ids, np.uint32), places[:, 0], places[:, 1]


Declare = Callable[[dict[str, Any]], tuple[dict[str, Any], DeclaredEnd | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a tokenizer is read from: a `tokenizer.json`, and what stands beside it.

    `files` are the bytes behind the fingerprint, by the names of their files. `declare`
    finds the end token, and makes it a control token if it is not one already.
    """

    data: str | bytes
    where: str
    kind: str
    files: Mapping[str, bytes]
    declare: Declare


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """An origin as the library has read it: `definition` is its JSON, the end declared."""

    definition: dict[str, Any]
    library: Any
    declared: DeclaredEnd | None
    fingerprint: str


def define_json_file(path: Path) -> Definition:
    """Define a tokenizer by a `tokenizer.json` file."""
    origin = json_file(path)
    return define(parse(origin), where=origin.where, reopen=partial(define_json_file, path))


def define_folder(folder: Path) -> Definition:
    """Define a tokenizer by a folder; its `tokenizer.json` decides if there is one."""
    _refuse_remote_code(folder)
    origin = folder_origin(folder)
    return define(parse(origin), where=origin.where, reopen=partial(define_folder, folder))


def folder_origin(folder: Path) -> Origin:
    """Return the `tokenizer.json` of a folder, or what transformers converts to one."""
    if (folder / "tokenizer.json").is_file():
        return json_file(folder / "tokenizer.json")
    return _converted_folder(folder)


def json_file(path: Path) -> Origin:
    """Return a `tokenizer.json` and the files beside it."""
    data = path.read_bytes()
    return Origin(
        data=data,
        where=str(path),
        kind="huggingface",
        files={"tokenizer.json": identity_of(data)},
        declare=partial(with_declared_end, path=path),
    )


def parse(origin: Origin) -> Parsed:
    """Read an origin; what the library cannot read is a FormatError."""
    parsed, library = _parse(origin.data, origin.where)
    definition, declared = origin.declare(parsed)
    files = origin.files
    if definition is not parsed:  # more tokens than the files that the fingerprint knows
        _, library = _parse(json.dumps(definition), origin.where)
        files = {**files, "added_tokens": json.dumps(definition["added_tokens"]).encode()}
    return Parsed(
        definition=definition,
        library=library,
        declared=declared,
        fingerprint=fingerprint_of(origin.kind, files),
    )


def define(parsed: Parsed, *, where: str, reopen: Callable[[], Definition]) -> Definition:
    """Define a tokenizer by what was read."""
    definition = parsed.definition
    controls = control_tokens(definition)
    vocab = _checked_vocabulary(parsed.library, controls, where)
    content = content_json(definition)
    continued = continued_definition(definition)
    return Definition(
        where=where,
        fingerprint=parsed.fingerprint,
        vocab_size=1 + max(vocab.values(), default=-1),
        control_ids=controls,
        reference=_Reference(content),
        decode_text=partial(parsed.library.decode, skip_special_tokens=False),
        reopen=reopen,
        candidates=(partial(gigatoken_of_json, content), partial(tiktoken_of_json, content)),
        words=[token["content"] for token in definition.get("added_tokens") or ()],
        control_strips=control_strips(definition),
        continued=None
        if continued is None
        else partial(define, replace(parsed, definition=continued), where=where, reopen=reopen),
        reference_again=lambda attempt: _Reference(content_json(definition, salt=attempt)),
        declared_end=parsed.declared,
    )


def _converted_folder(folder: Path) -> Origin:
    converted, names, end = _convert(folder)
    declared = None if end is None else DeclaredEnd(token=end, source="transformers")
    files = {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    return Origin(
        data=converted,
        where=str(folder),
        kind="huggingface folder",
        files=files,
        declare=lambda definition: (definition, declared),
    )


def _parse(data: str | bytes, where: str) -> tuple[dict[str, Any], Any]:
    library = _tokenizers()
    text = data if isinstance(data, str) else data.decode(errors="replace")
    try:
        definition = orjson.loads(text)
        return definition, library.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise FormatError(
            f"not a tokenizer.json of the tokenizers library: {error}", where=where
        ) from None


def _checked_vocabulary(original: Any, controls: dict[str, int], where: str) -> dict[str, int]:
    vocab: dict[str, int] = original.get_vocab(with_added_tokens=True)
    names = {number: text for text, number in controls.items()}
    for text, number in vocab.items():
        if names.get(number, text) != text or controls.get(text, number) != number:
            raise FormatError(
                f"the control token {names.get(number, text)!r} shares its id with other text",
                where=where,
                expected=controls.get(text, number),
                actual=f"{number:,} for {text!r}",
                remedy="repair the list of added tokens",
            )
    return vocab


def _convert(folder: Path) -> tuple[str, set[str], str | None]:
    """Return a tokenizer.json, the names of files it may be made of, and the end token."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtraError(
            "transformers", extra="hf", purpose="a tokenizer folder without a tokenizer.json"
        ) from None
    try:
        loaded = AutoTokenizer.from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True, use_fast=True
        )
        converted = loaded.backend_tokenizer.to_str()
    except Exception as error:  # any of a dozen kinds, by tokenizer class
        raise FormatError(
            f"transformers finds no tokenizer here: {error}",
            where=folder,
            remedy="give a tokenizer.json, a SentencePiece .model or a .tiktoken file",
        ) from None
    names = {*_CONFIG_FILES, "config.json", *loaded.vocab_files_names.values()}
    return converted, names, loaded.eos_token


def _refuse_remote_code(folder: Path) -> None:
    for name in ("tokenizer_config.json", "config.json"):
        path = folder / name
        classes = read_settings(path).get("auto_map")
        code = classes.get("AutoTokenizer") if isinstance(classes, dict) else classes
        if code:
            raise ConfigError(
                f"this tokenizer wants to run code of its own ({code}), which tokenreel never does",
                where=path,
                remedy="if its tokenizer.json holds the whole tokenizer, give that file instead",
            )


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and characters + len(text) > _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError(
            "tokenizers", extra="text", purpose="a Hugging Face tokenizer"
        ) from None
    return tokenizers
