"""The tokenizer of a stream, its special ids, and the size of vocabulary a model needs.

The size is the larger of the model's and the tokenizer's, rounded up to the multiple.
A special id is the first of these that there is; where auto_set_special_tokens is off, what is
given comes before what is declared:

    declared   what the tokenizer's own files name (end_of_text.py for the end,
               tokenizer_config.json and special_tokens_map.json for the others)
    given      model.bos_token_id, eos_token_id, pad_token_id
    spelled    a control token that is usually the one; never <|endoftext|> for the begin

A setting of the model that does not hold is logged, and so is a spelling that does. A name of
the hub is fetched once, files of the tokenizer alone; code that comes with it is never run.

Bytes have special ids of their own: end 256, begin 259, padding 260 (257 and 258 are those of
chats); with byte_offset, below the bytes: the model's, else padding 0, begin 1, end 2.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError, FormatError, InputError, MissingExtraError, NoInputError
from tokenreel.stream.stream_settings import ModelSettings, TokenizerSettings
from tokenreel.text.tokenizers import (
    END_OF_TEXT,
    Encoded,
    Tokenizer,
    byte_tokenizer,
    find_end,
    load_tokenizer,
)
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.specials import DEFAULT_SPECIALS
from tokenreel.text.tokenizers.tokenizer import fingerprint_of

log = logging.getLogger(__name__)
BEGIN, PAD = "<|begin_of_text|>", "<|pad|>"
USUAL = {
    "bos": ("<s>", BEGIN, "<bos>"),
    "pad": ("<pad>", PAD, "<|finetune_right_pad_id|>", "[PAD]"),
}
OF_BYTES = {"bos": BEGIN, "eos": END_OF_TEXT, "pad": PAD}  # declared by the tokenizer of bytes
FILE_SUFFIXES = (".json", ".model", ".tiktoken")
NAMING_FILES = ("tokenizer_config.json", "special_tokens_map.json")
FETCHED = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "generation_config.json",
    "tekken*.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A special token of a tokenizer, declared by its files or known by a usual spelling."""

    token: str
    id: int
    is_declared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A tokenizer with its special ids; `size` is rounded up, `pad_id` is never None."""

    tokenizer: Tokenizer
    size: int
    bos_id: int | None
    eos_id: int | None
    pad_id: int

    def as_settings(self) -> ModelSettings:
        """Return what a model is to be made with."""
        return ModelSettings(
            vocab_size=self.size,
            bos_token_id=self.bos_id,
            eos_token_id=self.eos_id,
            pad_token_id=self.pad_id,
        )


def open_vocabulary(
    settings: TokenizerSettings, model: ModelSettings, *, tokenizer: Tokenizer | None = None
) -> Vocabulary:
    """Return the vocabulary of a stream; ids outside it raise ConfigError.

    `tokenizer`, where given, takes the place of the one that the settings name.
    """
    spec: str = settings.kind
    named: Mapping[str, str] = {}
    given = {"bos": model.bos_token_id, "eos": model.eos_token_id, "pad": model.pad_token_id}
    if tokenizer is not None:
        tokenizer = load_tokenizer(tokenizer)
    elif settings.kind == "byte":
        tokenizer, named = _bytes(settings.byte_offset, given), OF_BYTES
    else:
        path = _local(settings.hf_name_or_path or "")
        spec, named = str(path), _named_tokens(path)
        tokenizer = load_tokenizer(path, engine=settings.engine)
    found = {role: _found(role, tokenizer.control_ids, named) for role in USUAL}
    is_needed = settings.add_eos and given["eos"] is None
    found["eos"] = _end(tokenizer, given["eos"], where=spec, is_needed=is_needed)
    ids = {
        role: _chosen(role, given[role], found[role], auto=settings.auto_set_special_tokens)
        for role in given
    }
    multiple = settings.vocab_size_multiple
    size = -(-max(model.vocab_size or 0, tokenizer.vocab_size) // multiple) * multiple
    _check_ids(ids, size)
    if settings.add_bos and ids["bos"] is None:
        raise _no_begin(tokenizer, where=spec)
    # Padding is known by position: where no token is meant for it, any will do.
    pad = next((ids[role] for role in ("pad", "eos") if ids[role] is not None), 0)
    return Vocabulary(
        tokenizer=tokenizer, size=size, bos_id=ids["bos"], eos_id=ids["eos"], pad_id=pad or 0
    )


def _chosen(role: str, given: int | None, found: Found | None, *, auto: bool) -> int | None:
    """Return the special id of a role.

    A setting of the model that does not hold is logged, and so is an id known by spelling alone.
    """
    if found is None or (given is not None and not (auto and found.is_declared)):
        return given
    if given is not None and given != found.id:
        log.warning(
            "model.%s_token_id is %d, as the tokenizer declares, and not %d, as configured; "
            "data.tokenizer.auto_set_special_tokens = false lets the model say",
            *(role, found.id, given),
        )
    if not found.is_declared and role != "eos":  # of the end, find_end has said it
        log.info(
            "model.%s_token_id is %d, by the usual spelling %s; the tokenizer declares none",
            *(role, found.id, found.token),
        )
    return found.id


def check_end_is_told_apart(vocabulary: Vocabulary, settings: TokenizerSettings) -> None:
    """Raise ConfigError where a byte, or the begin token, has the id of the end token.

    To ignore labels of the end token (data.train_on_eos = false) would ignore those too.
    """
    eos, tokenizer = vocabulary.eos_id, vocabulary.tokenizer
    if settings.kind != "byte" or eos is None:
        return
    is_byte = eos < tokenizer.vocab_size and eos not in tokenizer.control_ids.values()
    if is_byte or (settings.add_bos and eos == vocabulary.bos_id):
        raise ConfigError(
            "data.train_on_eos = false would ignore more than end tokens",
            expected="a model.eos_token_id of its own",
            actual=f"{eos}, which is {'a byte' if is_byte else 'the begin token'} as well",
            remedy="leave data.tokenizer.auto_set_special_tokens on, or choose another id",
        )


class OffsetBytes:
    """Bytes as tokens, each id higher by an offset: below it stand the special tokens.

    >>> tokenizer = OffsetBytes(3, {PAD: 0, BEGIN: 1, END_OF_TEXT: 2})
    >>> tokenizer.encode_batch(["a"]).ids.tolist(), tokenizer.decode([1, 100])
    ([100], '<|begin_of_text|>a')
    """

    def __init__(self, offset: int, control_ids: Mapping[str, int]) -> None:
        self._offset = offset
        self._bytes = byte_tokenizer(())
        self.vocab_size = 256 + offset
        self.control_ids = dict(control_ids)
        self.declared_end = DeclaredEnd(token=END_OF_TEXT, source="byte")
        parts = {"offset": offset, **control_ids}
        self.fingerprint = fingerprint_of(
            "offset bytes", {name: str(value).encode() for name, value in parts.items()}
        )

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Encode each text as its bytes."""
        encoded = self._bytes.encode_batch(texts)
        ids = encoded.ids + np.uint32(self._offset)
        return Encoded(ids=ids, offsets=encoded.offsets)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of the ids; control ids show as their strings."""
        names = {number: name.encode() for name, number in self.control_ids.items()}
        parts = (names.get(n) or bytes([n - self._offset]) for n in map(int, ids))
        return b"".join(parts).decode(errors="replace")


def _bytes(offset: int, given: Mapping[str, int | None]) -> Tokenizer:
    """Return the tokenizer of bytes, with different ids for begin, end and padding."""
    if not offset:
        return byte_tokenizer((*DEFAULT_SPECIALS, BEGIN, PAD))
    usual = {"pad": 0, "bos": 1, "eos": 2}
    ids = {role: usual[role] if given[role] is None else given[role] for role in usual}
    if len(set(ids.values())) < len(ids) or not all(0 <= (n or 0) < offset for n in ids.values()):
        raise ConfigError(
            "special tokens have no room below data.tokenizer.byte_offset",
            expected=f"model.pad_token_id, bos and eos apart, 0 to {offset - 1}",
            actual=", ".join(f"{role} {number}" for role, number in ids.items()),
            remedy="raise byte_offset to 3 or more, or give other ids",
        )
    return OffsetBytes(offset, {OF_BYTES[role]: number or 0 for role, number in ids.items()})


def _no_begin(tokenizer: Tokenizer, *, where: str) -> ConfigError:
    return ConfigError(
        "data.tokenizer.add_bos is asked for, and the tokenizer names no such token",
        where=where,
        expected=" or ".join(USUAL["bos"]),
        actual=", ".join(sorted(tokenizer.control_ids)) or "no control tokens",
        remedy="say which with model.bos_token_id",
    )


def _end(tokenizer: Tokenizer, given: int | None, *, where: str, is_needed: bool) -> Found | None:
    """Return the end token, or None; raise ConfigError where one is needed and not to be found."""
    is_declared = getattr(tokenizer, "declared_end", None) is not None
    if given is not None and not is_declared:
        return None  # a spelling would not hold: do not look for one, which logs it
    try:
        end = find_end(tokenizer)
    except ConfigError as error:
        if not is_needed:
            return None
        raise ConfigError(
            f"data.tokenizer.add_eos is asked for, and {error.what}",
            where=where,
            expected=error.expected,
            actual=error.actual,
            remedy="say which with model.eos_token_id",
        ) from None
    return Found(token=end.token, id=end.id, is_declared=is_declared)


def _found(role: str, control_ids: Mapping[str, int], named: Mapping[str, str]) -> Found | None:
    """Return the begin or padding token of a tokenizer, if it has one."""
    declared = named.get(role)
    if declared is not None and declared in control_ids:
        return Found(token=declared, id=control_ids[declared], is_declared=True)
    for token in USUAL[role]:
        if token in control_ids:
            return Found(token=token, id=control_ids[token], is_declared=False)
    return None


def _check_ids(ids: Mapping[str, int | None], size: int) -> None:
    for role, number in ids.items():
        if number is not None and not 0 <= number < size:
            raise ConfigError(
                f"model.{role}_token_id is outside the vocabulary",
                expected=f"0 to {size - 1:,}",
                actual=number,
            )


def _named_tokens(spec: Path) -> dict[str, str]:
    """Return the tokens that a tokenizer's own files name, by role."""
    folder = spec if spec.is_dir() else spec.parent
    named: dict[str, str] = {}
    for path in (folder / name for name in NAMING_FILES):
        if not path.is_file():
            continue
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError as error:
            raise FormatError(f"no JSON: {error}", where=path) from None
        for role in USUAL:
            token = content.get(f"{role}_token")
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                named.setdefault(role, token)
    return named


def _local(name: str) -> Path:
    """Return a tokenizer's path; a name of the hub is fetched, or found in its cache."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    if _is_path(name):
        raise NoInputError(
            "no such tokenizer",
            where=name,
            expected="a file or folder, as this is no name of the hub",
            remedy="check data.tokenizer.hf_name_or_path",
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtraError(
            "huggingface_hub", extra="hf", purpose="a tokenizer of the hub"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=list(FETCHED)))
    except Exception as error:  # of the client's many kinds, all mean that it is not to be had
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"no such tokenizer: neither a path, nor to be had from the hub ({said})",
            where=name,
            remedy="check data.tokenizer.hf_name_or_path",
        ) from error


def _is_path(name: str) -> bool:
    """Return whether a name can only be a path: those of the hub are `name` or `owner/name`.

    >>> [_is_path(name) for name in ("./a", "a/b.json", "a/b.model.v3", "a/b/c", "a/b-2.5", "gpt2")]
    [True, True, True, True, False, False]
    """
    is_marked = name.startswith((".", "~", "/")) or Path(name).is_absolute()
    is_file = name.endswith(FILE_SUFFIXES) or ".model.v" in name  # such as Mistral's .model.v3
    return is_marked or is_file or name.count("/") > 1
