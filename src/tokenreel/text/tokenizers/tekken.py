"""Mistral's tekken files (`tekken.json`, `tekken_240911.json`).

A tekken file is a tiktoken encoding with a beginning of its own:

    ids      0 … num_special - 1           special tokens: those that are listed, then fillers
             num_special … vocab_size - 1  the first tokens of the vocabulary, in order of rank
    config   pattern, default_vocab_size, default_num_special_tokens, version

Files up to version v7 may leave the special tokens out; they then are the twenty that
LISTED_BEFORE_V8 names. All special tokens are control tokens, the fillers too, which are
called <SPECIAL_20> and so on. Ids, names and sizes are those of `mistral-common`, which the
tests compare with; it is not needed here. What a file says of images and audio is left out.

The reference is tiktoken, told of no special tokens (see tiktoken.py for what it costs).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.text.tokenizers.bpe_engines import Gigatoken, TiktokenRanks
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.tiktoken import (
    Ranks,
    decode_ranks,
    gigatoken_of_pattern,
    make_encoding,
    rank_file,
)
from tokenreel.text.tokenizers.tokenizer import Definition, fingerprint_of
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded

END = "</s>"
LISTED_BEFORE_V8 = (
    *("<unk>", "<s>", END, "[INST]", "[/INST]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    *("[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)
_UNLISTED_VERSIONS = ("v1", "v2", "v3", "v7")
_T = TypeVar("_T")
# Sizes that no vocabulary has, and a damaged or hostile number may.
_MOST_IDS = 1 << 24
_MOST_SPECIAL = 1 << 16


def is_tekken(path: Path) -> bool:
    """Tell whether a file is named as tekken files are.

    >>> is_tekken(Path("tekken_240911.json")), is_tekken(Path("tokenizer.json"))
    (True, False)
    """
    return path.suffix == ".json" and "tekken" in path.name


def define_tekken(path: Path) -> Definition:
    """Define a tokenizer by a tekken file."""
    data = path.read_bytes()
    content = _Content.read(data, path)
    ranks = content.ranks
    # tiktoken takes ranks from any number on: these are the ids.
    shifted = {token: rank + content.num_special for token, rank in ranks.items()}
    encoding = make_encoding(content.pattern, shifted, str(path))
    return Definition(
        where=str(path),
        fingerprint=fingerprint_of("tekken", {"tekken.json": data}),
        vocab_size=content.num_special + len(ranks),
        control_ids=content.specials,
        reference=TiktokenRanks(encoding),
        decode_text=partial(decode_ranks, encoding),
        reopen=partial(define_tekken, path),
        candidates=(partial(_gigatoken, content.pattern, ranks, content.num_special),),
        declared_end=(DeclaredEnd(token=END, source="tekken") if END in content.specials else None),
    )


@dataclass(frozen=True, slots=True)
class _Shifted:
    """Encode with gigatoken, which wants ranks from zero on, and add what comes before them."""

    engine: Gigatoken
    num_special: int

    @property
    def name(self) -> str:
        return self.engine.name

    def encode(self, texts: Sequence[str]) -> Encoded:
        return self._shift(self.engine.encode(texts))

    def encode_utf8(self, texts: Sequence[bytes]) -> Encoded:
        return self._shift(self.engine.encode_utf8(texts))

    def _shift(self, encoded: Encoded) -> Encoded:
        ids = encoded.ids + np.uint32(self.num_special)
        return Encoded(ids=ids, offsets=encoded.offsets)


def _gigatoken(pattern: str, ranks: Ranks, num_special: int) -> _Shifted:
    return _Shifted(gigatoken_of_pattern(pattern, rank_file(ranks)), num_special)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What a tekken file says, checked: ranks are 0, 1, … and special ids 0 to num_special."""

    pattern: str
    ranks: Ranks
    specials: dict[str, int]
    num_special: int

    @classmethod
    def read(cls, data: bytes, path: Path) -> _Content:
        try:
            content = json.loads(data)
            config = content["config"]
            num_special = _size(config, "default_num_special_tokens", most=_MOST_SPECIAL)
            num_ranks = _size(config, "default_vocab_size", most=_MOST_IDS) - num_special
            return cls(
                pattern=_typed(config["pattern"], str),
                specials=_specials(content, num_special),
                ranks=_ranks(content["vocab"], num_ranks),
                num_special=num_special,
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
            raise FormatError(
                f"not a tekken file of Mistral: {what}",
                where=path,
                expected='"config", "vocab" and, from version v8 on, "special_tokens"',
                remedy="a tokenizer of another kind must not have tekken in its name",
            ) from None


def _size(config: Mapping[str, Any], key: str, *, most: int) -> int:
    size = _typed(config[key], int)
    if not 0 <= size <= most:
        raise ValueError(f"{key} is {size:,}, not between 0 and {most:,}")
    return size


def _typed(value: Any, kind: type[_T]) -> _T:
    if type(value) is not kind:
        raise TypeError(f"a {kind.__name__} is expected, not {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    _typed(value, str).encode()  # half of a surrogate pair is no text, and cannot be written
    return value


def _ranks(vocab: Sequence[Mapping[str, Any]], num_ranks: int) -> Ranks:
    """Return the first `num_ranks` tokens of a vocabulary by their bytes."""
    if not 0 < num_ranks <= len(vocab):
        raise ValueError(f"the config wants {num_ranks:,} tokens of a vocabulary of {len(vocab):,}")
    ranks: Ranks = {}
    for rank, entry in enumerate(vocab[:num_ranks]):
        if entry["rank"] != rank:
            raise ValueError(f"the token in place {rank:,} has the rank {entry['rank']}")
        ranks[base64.b64decode(entry["token_bytes"], validate=True)] = rank
    if len(ranks) < num_ranks:
        raise ValueError("a token stands in the vocabulary twice")
    return ranks


def _specials(content: Mapping[str, Any], num_special: int) -> dict[str, int]:
    """Return the special tokens by their strings: those listed, and fillers up to the number."""
    listed = content.get("special_tokens")
    if listed is None:
        version = content["config"].get("version")
        if version not in _UNLISTED_VERSIONS:
            raise ValueError(f"a file of version {version} must list its special_tokens")
        listed = [{"rank": n, "token_str": text} for n, text in enumerate(LISTED_BEFORE_V8)]
    if len(listed) > num_special:
        raise ValueError(f"{len(listed):,} special tokens are listed, more than {num_special:,}")
    names = {_typed(entry["rank"], int): _text(entry["token_str"]) for entry in listed}
    fillers = {n: f"<SPECIAL_{n}>" for n in range(len(listed), num_special)}
    ids = {text: number for number, text in {**fillers, **names}.items()}
    if sorted(ids.values()) != list(range(num_special)):
        raise ValueError("the special tokens do not fill the ids before the vocabulary")
    return dict(sorted(ids.items(), key=lambda item: item[1]))
